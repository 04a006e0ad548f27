"""Work on many jobs that takes longer than a page: started by a form, watched on a page of its own.

The work runs in this process, a small step at a time, and goes on when nobody looks. It may be
stopped, and ends with the process; either way what was done is done, and the same work asked for
again does the rest. One of a kind runs at a time. Its end is written into the log of changes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from dq.core.errors import DqError
from dq.db.admin_store import Change
from dq.journal.dead import Done
from dq.web.deps import Admin
from dq.web.forms import redirect
from dq.web.live import Live
from dq.web.pages import Pages, with_query
from dq.web.refusals import Refusal
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import Visitor, visitor_of

KEPT = 50
"""Works that are remembered after their end."""

_log = logging.getLogger(__name__)

Kind = Literal["redrive", "drop", "cancel"]
Step = Callable[[], Awaitable[tuple[Done, bool]]]
"""Does the next bit: what came of it, and whether it was the last one."""

TITLES: Mapping[str, Say] = {
    "redrive": Say("Redriving dead jobs"),
    "drop": Say("Throwing dead jobs away"),
    "cancel": Say("Cancelling jobs"),
}


@dataclass
class Work:
    """One work. `expected`: how many there were when it was confirmed, at least so many unless
    `is_exact`. `state`: running, stopping, then done, stopped or failed."""

    id: str
    kind: Kind
    query: Mapping[str, str]
    expected: int
    is_exact: bool
    who: str
    began_ms: int
    done: Done = field(default_factory=Done)
    state: str = "running"
    ended_ms: int | None = None
    task: asyncio.Task[None] | None = None
    live: Live[Work] | None = None

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "stopping")

    @property
    def list_path(self) -> str:
        """The list that it works on."""
        return with_query("/jobs" if self.kind == "cancel" else "/dead", **self.query)


class Bulk:
    """Handlers of /bulk, and the works themselves."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions) -> None:
        self._admin = admin
        self._pages = pages
        self._sessions = sessions
        self._works: dict[str, Work] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/bulk/{id}", self.show),
            web.get("/bulk/{id}/live", self.live, allow_head=False),
            web.post("/bulk/{id}/stop", self.stop_one),
        ]

    def start(
        self,
        request: web.Request,
        kind: Kind,
        query: Mapping[str, str],
        expected: tuple[int, bool],
        step: Step,
    ) -> str:
        """Begin a work; the path of its page. Raises Refusal while another of its kind runs."""
        if any(work.kind == kind and work.is_running for work in self._works.values()):
            raise Refusal(409, Say("The same kind of work is under way. Wait for it, or stop it."))
        visitor = visitor_of(request)
        work = Work(
            secrets.token_urlsafe(9), kind, query, *expected, visitor.user, self._admin.now_ms()
        )
        self._works[work.id] = work
        for old in [one.id for one in self._works.values() if not one.is_running][:-KEPT]:
            del self._works[old]
        work.live = self._live_of(work)
        work.task = asyncio.create_task(self._run(work, step, visitor.address))
        return with_query(f"/bulk/{work.id}", kind=kind, **query)

    async def show(self, request: web.Request) -> web.Response:
        work = self._works.get(request.match_info["id"])
        if work is None:
            return await self._show_lost(request)
        visitor = visitor_of(request)
        return await self._pages.show(
            request,
            "jobs/bulk.html",
            tab="jobs" if work.kind == "cancel" else "dead",
            work=work,
            title=TITLES[work.kind],
            progress=self._render(visitor, work)["progress"],
        )

    async def _show_lost(self, request: web.Request) -> web.Response:
        """It ended with the process that ran it; its address still says what it was about."""
        query = dict(request.query)
        kind = query.pop("kind", "")
        if kind not in TITLES:
            raise web.HTTPNotFound
        path = with_query("/jobs" if kind == "cancel" else "/dead", **query)
        tab = "jobs" if kind == "cancel" else "dead"
        return await self._pages.show(
            request, "jobs/bulk_lost.html", tab=tab, title=TITLES[kind], path=path
        )

    async def live(self, request: web.Request) -> web.StreamResponse:
        work = self._works.get(request.match_info["id"])
        if work is None or work.live is None:
            raise web.HTTPNotFound
        return await work.live.stream(request)

    async def stop_one(self, request: web.Request) -> web.Response:
        work = self._works.get(request.match_info["id"])
        if work is None:
            raise web.HTTPNotFound
        if work.state == "running":
            work.state = "stopping"
        return redirect(request, with_query(f"/bulk/{work.id}", kind=work.kind, **work.query))

    async def stop(self, _: web.Application | None = None) -> None:
        """The process is leaving: a step that is under way is brought to its end."""
        running = []
        for work in self._works.values():
            if work.live is not None:
                await work.live.stop()
            if work.is_running and work.task is not None:
                work.state = "stopping"
                running.append(work.task)
        if running:
            await asyncio.wait(running, timeout=5.0)

    async def _run(self, work: Work, step: Step, address: str) -> None:
        try:
            is_last = False
            while not is_last and work.state == "running":
                done, is_last = await step()
                work.done.add(done)
                if done.trouble:
                    break
            work.state = "failed" if work.done.trouble else "done" if is_last else "stopped"
        except DqError as error:
            work.done.trouble, work.state = str(error), "failed"
        except Exception:
            _log.exception("work on many jobs broke off")
            work.done.trouble, work.state = "dq's error log has the details", "failed"
        work.ended_ms = self._admin.now_ms()
        await self._note(work, address)

    async def _note(self, work: Work, address: str) -> None:
        target = "jobs" if work.kind == "cancel" else "dead"
        wanted = ", ".join(f"{name}={value}" for name, value in work.query.items()) or "all"
        done = work.done
        after = (
            f"{work.state}: {done.done} of {done.matched}, {done.gone} gone, {done.failed} failed"
        )
        change = Change(
            self._admin.now_ms(),
            work.who,
            f"{target}.{work.kind}",
            target,
            wanted,
            after,
            address,
            self._admin.host,
        )
        try:
            await self._admin.store.add_change(change)
        except DqError as error:
            _log.error("not in the log of changes (%s): %s %s", error, change.action, after)

    def _live_of(self, work: Work) -> Live[Work]:
        async def look() -> Work:
            return work

        def render(visitor: Visitor, seen: Work) -> Mapping[str, str]:
            return self._render(visitor, seen)

        def is_welcome(visitor: Visitor) -> bool:
            return self._sessions.find(visitor.token) is not None

        return Live(look, render, is_welcome, each_s=0.5)

    def _render(self, visitor: Visitor, work: Work) -> Mapping[str, str]:
        return {"progress": self._pages.fragment(visitor, "jobs/progress.html", work=work)}
