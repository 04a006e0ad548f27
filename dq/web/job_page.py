"""One job's page: its body, its story, why it waits, and what can be done about it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from dq.api.ids import is_good_id
from dq.api.instants import check_due, parse_fix_time, parse_rfc3339
from dq.api.job_fields import read_due
from dq.api.problems import Refused
from dq.api.wire import path_part
from dq.core.errors import DatabaseAway, Invalid, NodeAway
from dq.core.topic import is_topic_name
from dq.db.rows import JobRecord, State
from dq.journal.shipped import wait_shipped
from dq.queue.records import PRIORITIES
from dq.queue.schedule import JobView
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.job_body import ShownBody, as_curl, show_body
from dq.web.job_reasons import Reason, explain
from dq.web.job_story import Event, lateness_ms, story_of
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.texts import Say

CATCH_UP_MS = 300
FIND_S = 2.0


class Facts(msgspec.Struct, frozen=True):
    """A job, from its node or from the journal."""

    topic: str
    id: str
    state: str
    due_ms: int
    attempt: int
    body: bytes
    priority: str
    key: str
    created_ms: int
    timeout_ms: int = 0
    is_bodiless: bool = False


@dataclass(frozen=True)
class Look:
    """What is known of a job. `view` None: no node has it; `away` says why that may be wrong.
    `sql` says why the story may lack something."""

    facts: Facts
    view: JobView | None
    story: list[Event]
    late_ms: int | None
    away: str
    sql: str


class JobPage:
    """Handlers of /jobs/{topic}/{id}."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        job = "/jobs/{topic:[^/]+}/{id:[^/]+}"
        return [
            web.get(job, self.show),
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
        found = await self.look(topic, id_)
        if found is None:
            raise Refusal(
                404,
                Say(
                    "Topic {topic} has no job {id}: perhaps it is forgotten by now.",
                    topic=topic,
                    id=id_,
                ),
            )
        body = show_body(found.facts.body, "raw" in request.query)
        return await self._pages.show(
            request,
            "jobs/one.html",
            tab="jobs",
            status=status,
            look=found,
            job=found.facts,
            path=_path(topic, id_),
            reasons=await self._reasons(found),
            body=body,
            curl=self._curl(found.facts, body),
            form=form,
        )

    async def _reasons(self, found: Look) -> list[Reason]:
        if found.view is None:
            return [Reason("node_away", "bad", text=found.away)] if found.away else []
        job, admin = found.view, self._admin
        hold = await admin.inspector.hold_up(job.topic, job.id)
        topic = admin.topics.get(job.topic)
        return explain(job, topic, hold, admin.instance(), admin.now_ms())

    def _curl(self, job: Facts, body: ShownBody) -> str:
        settings = self._admin.settings
        url = f"http://{settings.api_host}:{settings.api_port}/v1/jobs"
        return as_curl(job, url, bool(settings.api_tokens), body)

    async def look(self, topic: str, id_: str) -> Look | None:
        """All that is known of a job, None for one that never was. Raises DatabaseAway when only
        the journal could tell, NodeAway when nothing can."""
        (view, away), (record, sql) = await asyncio.gather(
            self._find(topic, id_), self._read(topic, id_)
        )
        if view is None and record is None:
            if away:
                raise NodeAway(away)
            if sql:
                raise DatabaseAway(sql)
            return None
        facts = _facts(view, record)
        is_same = record is not None and (view is None or view.version == record.message.version)
        story = story_of(record if is_same else None, facts.created_ms)
        late_ms = lateness_ms(record) if is_same and record is not None else None
        return Look(facts, view, story, late_ms, away, sql)

    async def _find(self, topic: str, id_: str) -> tuple[JobView | None, str]:
        try:
            async with asyncio.timeout(FIND_S):
                return await self._admin.schedule.find(topic, id_), ""
        except NodeAway as error:
            return None, error.detail
        except TimeoutError:
            return None, f"no answer within {FIND_S:g} s"

    async def _read(self, topic: str, id_: str) -> tuple[JobRecord | None, str]:
        admin = self._admin
        try:
            behind = await wait_shipped(admin.settings.data_dir / "log", admin.journal, CATCH_UP_MS)
            record = await admin.journal.history(topic, id_)
        except DatabaseAway as error:
            return None, error.detail
        return record, "the journal is behind the logs" if behind else ""

    async def body(self, request: web.Request) -> web.Response:
        """The body, byte for byte, as a file."""
        topic, id_ = _names(request)
        found = await self.look(topic, id_)
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
        return redirect(request, _path(topic, id_), said)

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
        return redirect(request, _path(topic, id_), said)

    async def redrive(self, request: web.Request) -> web.Response:
        topic, id_ = _names(request)
        if not await self._admin.dead.one("redrive", topic, id_):
            raise _not_dead(topic, id_)
        await self._admin.note(request, "dead.redrive", f"{topic}/{id_}")
        return redirect(request, _path(topic, id_), Said("The job is back on the schedule."))

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


def _facts(view: JobView | None, record: JobRecord | None) -> Facts:
    if view is not None:
        timeout_ms = 0
        if record is not None and record.message.version == view.version:
            timeout_ms = record.message.timeout_ms
        return Facts(
            *(view.topic, view.id, view.state, view.due_ms, view.attempt, view.body),
            *(view.priority, view.key, view.created_ms, timeout_ms),
        )
    assert record is not None
    row = record.message
    state = State(row.state).name.lower()
    return Facts(
        *(row.topic, row.id, state, row.due, row.attempt, row.body),
        *(PRIORITIES[row.priority], row.bkey, row.created, row.timeout_ms, row.stub),
    )


def _names(request: web.Request) -> tuple[str, str]:
    try:
        topic, id_ = path_part(request, 1), path_part(request, 2)
    except Refused:
        raise web.HTTPNotFound from None
    if not is_topic_name(topic) or not is_good_id(id_):
        raise web.HTTPNotFound
    return topic, id_


def _path(topic: str, id_: str) -> str:
    return f"/jobs/{topic}/{quote(id_, safe='')}"


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
