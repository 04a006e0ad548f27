"""One job's page: its body, its story, why it waits, and what can be done about it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from aiohttp import web

from dq.api.ids import is_good_id
from dq.api.instants import check_due, parse_fix_time, parse_rfc3339
from dq.api.job_fields import read_due
from dq.api.problems import Refused
from dq.api.wire import path_part
from dq.core.errors import Invalid
from dq.core.topic import is_topic_name
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.job_live import JobLive, job_path, no_job
from dq.web.job_look import JobLooker
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import visitor_of


class JobPage:
    """Handlers of /jobs/{topic}/{id}."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions) -> None:
        self._admin = admin
        self._pages = pages
        self.looker = JobLooker(admin)
        self.live = JobLive(admin, pages, sessions, self.looker)

    def routes(self) -> list[web.RouteDef]:
        job = "/jobs/{topic:[^/]+}/{id:[^/]+}"
        return [
            web.get(job, self.show),
            web.get(job + "/live", self.stream, allow_head=False),
            web.get(job + "/body", self.body),
            web.post(job + "/cancel", self.cancel),
            web.post(job + "/run", self.run),
            web.post(job + "/move", self.move),
            web.post(job + "/redrive", self.redrive),
            web.post(job + "/drop", self.drop),
        ]

    async def show(self, request: web.Request) -> web.Response:
        return await self._show(request, Form({}))

    async def _show(self, request: web.Request, form: Form, status: int = 200) -> web.Response:
        topic, id_ = _names(request)
        found = await self.looker.look(topic, id_)
        if found is None:
            raise Refusal(404, no_job(topic, id_))
        reasons, is_raw = await self.looker.reasons(found), "raw" in request.query
        return await self._pages.show(
            request,
            "jobs/one.html",
            tab="jobs",
            status=status,
            job=found.facts,
            path=job_path(topic, id_),
            parts=self.live.parts(visitor_of(request), found, reasons, form, is_raw=is_raw),
            is_raw=is_raw,
            is_refused=bool(form.faults),
        )

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The parts of the page that change, as they change."""
        return await self.live.stream(request, *_names(request))

    async def body(self, request: web.Request) -> web.Response:
        """The body, byte for byte, as a file."""
        topic, id_ = _names(request)
        found = await self.looker.look(topic, id_)
        if found is None:
            raise web.HTTPNotFound
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{topic}-{id_}")[:100]
        headers = {"Content-Disposition": f'attachment; filename="{name}.json"'}
        kind = "application/octet-stream"
        return web.Response(body=found.facts.body, content_type=kind, headers=headers)

    async def cancel(self, request: web.Request) -> web.Response:
        topic, id_ = _names(request)
        result = await self._admin.schedule.cancel(topic, id_)
        if result is None:
            raise _not_unfinished(topic, id_)
        await self._admin.note(request, "job.cancel", f"{topic}/{id_}", after=result)
        if result == "running":
            said = Said("This callback is under way and can't be called back; no retry follows.")
        else:
            said = Said("The job is cancelled.")
        return redirect(request, job_path(topic, id_), said)

    async def run(self, request: web.Request) -> web.Response:
        topic, id_ = _names(request)
        said = Said("The job is due now.")
        return await self._move(request, topic, id_, self._admin.now_ms(), said)

    async def move(self, request: web.Request) -> web.Response:
        topic, id_ = _names(request)
        form = await read_form(request)
        due_ms = _read_due(form, self._admin.now_ms())
        if due_ms is None:
            return await self._show(request, form, 422)
        said = Said("The job has another due time.")
        return await self._move(request, topic, id_, due_ms, said)

    async def _move(
        self, request: web.Request, topic: str, id_: str, due_ms: int, said: Said
    ) -> web.Response:
        result = await self._admin.schedule.reschedule(topic, id_, due_ms)
        if result is None:
            raise _not_unfinished(topic, id_)
        if result == "running":
            raise Refusal(409, Say("The job is being called back just now; nothing was changed."))
        await self._admin.note(request, "job.move", f"{topic}/{id_}", after=f"due {due_ms}")
        return redirect(request, job_path(topic, id_), said)

    async def redrive(self, request: web.Request) -> web.Response:
        topic, id_ = _names(request)
        if not await self._admin.dead.one("redrive", topic, id_):
            raise _not_dead(topic, id_)
        await self._admin.note(request, "dead.redrive", f"{topic}/{id_}")
        return redirect(request, job_path(topic, id_), Said("The job is back on the schedule."))

    async def drop(self, request: web.Request) -> web.Response:
        topic, id_ = _names(request)
        if not await self._admin.dead.one("drop", topic, id_):
            raise _not_dead(topic, id_)
        await self._admin.note(request, "dead.drop", f"{topic}/{id_}")
        return redirect(request, "/dead", Said("Job {id} is forgotten.", {"id": id_}))


def _read_due(form: Form, now_ms: int) -> int | None:
    """Seconds from now, or a time; None when it is wrong, which stands in the form."""
    delay, due = form.text("delay"), form.text("due")
    if bool(delay) == bool(due):
        form.fault("due", Say("Give one of the two: a delay or a time."))
        return None
    try:
        if delay:
            return read_due(msgspec.json.encode({"delay": _number(delay)}), now_ms)
        if due.isascii() and due.isdigit():
            return check_due(int(due[:20]))
        local = due.replace("T", " ")
        if re.fullmatch(r"[\d -]+:\d\d(:\d\d)?", local):
            return parse_fix_time(local if len(local) != 16 else f"{local}:00")
        return parse_rfc3339(due)
    except Invalid as error:
        form.fault("delay", error.errors[0].message)
    except ValueError as error:
        form.fault("due", str(error))
    return None


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _names(request: web.Request) -> tuple[str, str]:
    try:
        topic, id_ = path_part(request, 1), path_part(request, 2)
    except Refused:
        raise web.HTTPNotFound from None
    if not is_topic_name(topic) or not is_good_id(id_):
        raise web.HTTPNotFound
    return topic, id_


def _not_unfinished(topic: str, id_: str) -> Refusal:
    what = Say(
        "Topic {topic} has no unfinished job {id}; nothing was changed.", topic=topic, id=id_
    )
    return Refusal(409, what)


def _not_dead(topic: str, id_: str) -> Refusal:
    what = Say(
        "Job {id} of topic {topic} is not dead (any more); nothing was changed.",
        topic=topic,
        id=id_,
    )
    return Refusal(409, what)
