"""A job's page follows its job: one look at the job serves all who have its page open.

The parts of the page that change are templates of their own (jobs/one/*.html), the same on the
page and in the stream. Nobody looks at a job whose page nobody has open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from dq.core.errors import DqError
from dq.web.deps import Admin
from dq.web.forms import Form
from dq.web.job_body import ShownBody, as_curl, show_body
from dq.web.job_look import Facts, JobLooker, Look
from dq.web.job_reasons import Reason
from dq.web.live import Live, too_many
from dq.web.pages import Pages
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import Visitor

PARTS = ("top", "waits", "story", "facts", "move", "body", "curl")
EACH_S = 0.7
MOST_JOBS = 50
"""Followed at a time: each costs a look at its node and at SQL every EACH_S."""


@dataclass(frozen=True)
class Seen:
    """What a look at a job told. `look` None: nothing, for which `trouble` says why."""

    look: Look | None
    reasons: list[Reason]
    trouble: Say | str = ""


class JobLive:
    """The live parts of jobs' pages, and their streams."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions, looker: JobLooker) -> None:
        self._admin = admin
        self._pages = pages
        self._sessions = sessions
        self._looker = looker
        self._lives: dict[tuple[str, str], Live[Seen]] = {}

    async def stream(self, request: web.Request, topic: str, id_: str) -> web.StreamResponse:
        """The job's parts as they change, for as long as somebody watches."""
        names = (topic, id_)
        live = self._lives.get(names)
        if live is None:
            if len(self._lives) >= MOST_JOBS:
                raise too_many()
            live = self._lives[names] = self._live_of(topic, id_)
        try:
            return await live.stream(request)
        finally:
            if not live.watchers:
                self._lives.pop(names, None)
                await live.stop()

    async def stop(self, _: web.Application | None = None) -> None:
        """End all streams: the process is leaving."""
        for live in list(self._lives.values()):
            await live.stop()

    def parts(
        self, visitor: Visitor, look: Look, reasons: list[Reason], form: Form, *, is_raw: bool
    ) -> Mapping[str, str]:
        """Each live part of the page as the visitor reads it. `form`: of another due time."""
        body = show_body(look.facts.body, is_raw)
        values = {
            "look": look,
            "job": look.facts,
            "path": job_path(look.facts.topic, look.facts.id),
            "reasons": reasons,
            "body": body,
            "curl": self._curl(look.facts, body),
            "form": form,
        }
        return {
            part: self._pages.fragment(visitor, f"jobs/one/{part}.html", **values) for part in PARTS
        }

    def _curl(self, job: Facts, body: ShownBody) -> str:
        settings = self._admin.settings
        url = f"http://{settings.api_host}:{settings.api_port}/v1/jobs"
        return as_curl(job, url, bool(settings.api_tokens), body)

    def _live_of(self, topic: str, id_: str) -> Live[Seen]:
        async def look() -> Seen:
            return await self._see(topic, id_)

        def is_welcome(visitor: Visitor) -> bool:
            return self._sessions.find(visitor.token) is not None

        return Live(look, self._render, is_welcome, EACH_S)

    async def _see(self, topic: str, id_: str) -> Seen:
        try:
            look = await self._looker.look(topic, id_)
            if look is None:
                return Seen(None, [], no_job(topic, id_))
            return Seen(look, await self._looker.reasons(look))
        except DqError as error:
            return Seen(None, [], str(error))

    def _render(self, visitor: Visitor, seen: Seen) -> Mapping[str, str]:
        """With nothing to tell the page stays as it is, and says so."""
        if seen.look is None:
            text = self._pages.fragment(visitor, "jobs/one/lost.html", trouble=seen.trouble)
            return {"waits": text}
        return self.parts(visitor, seen.look, seen.reasons, Form({}), is_raw=False)


def job_path(topic: str, id_: str) -> str:
    """The address of a job's page."""
    return f"/jobs/{topic}/{quote(id_, safe='')}"


def no_job(topic: str, id_: str) -> Say:
    """What is said of a job that nothing knows."""
    return Say(
        "Topic {topic} has no job {id}: perhaps it is forgotten by now.", topic=topic, id=id_
    )
