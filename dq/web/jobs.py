"""The pages about jobs: searching, pushing one, cancelling many. One job's own page is in
dq/web/job_page.py."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from aiohttp import web
from multidict import MultiDict

from dq.api.deps import JobSearch
from dq.api.ids import is_good_id
from dq.core.clock import mono_ms
from dq.core.errors import DatabaseAway, Invalid
from dq.core.topic import is_topic_name
from dq.db.dead_letters import DeadCount
from dq.web.bulk import Bulk
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.job_cancel import CancelStep
from dq.web.job_live import job_path
from dq.web.job_page import JobPage
from dq.web.job_push import PushForm, prefill
from dq.web.job_search import STATES, Filter, Found, JobFinder, Line, as_local, read_filter
from dq.web.pages import Pages, with_query
from dq.web.refusals import Refusal
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import visitor_of

MOST_COUNTED = 10_000
COUNT_BUDGET_MS = 1_000
SAMPLE = 10
_COUNT_PAGE = 1_000

SAID = {
    "created": Said("Job {id} is pushed."),
    "replaced": Said("Job {id} is pushed; it took the place of the unfinished one."),
    "kept": Said("Job {id} was there already and is kept as it was."),
}


class JobsPage:
    """Handlers of /jobs."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions, bulk: Bulk) -> None:
        self._admin = admin
        self._pages = pages
        self._bulk = bulk
        self._finder = JobFinder(admin)
        self._form = PushForm(admin)
        self._one = JobPage(admin, pages, sessions)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/jobs", self.show),
            web.get("/jobs/go", self.go),
            web.get("/jobs/new", self.new),
            web.post("/jobs/new", self.push),
            web.get("/jobs/confirm", self.confirm),
            web.post("/jobs/start", self.start),
            *self._one.routes(),
        ]

    async def stop(self, _: web.Application) -> None:
        """End the live streams."""
        await self._one.live.stop()

    async def show(self, request: web.Request) -> web.Response:
        wanted = read_filter(request.query)
        found, trouble = Found([], None), ""
        if not wanted.faults:
            try:
                found = await self._finder.find(wanted)
            except DatabaseAway as error:
                trouble = error.detail
            except Invalid as error:
                wanted = replace(wanted, faults={one.field: one.message for one in error.errors})
        return await self._pages.show(
            request,
            "jobs.html",
            tab="jobs",
            status=422 if wanted.faults else 200,
            wanted=wanted,
            found=found,
            trouble=trouble,
            states=STATES,
            topics=self._topics(),
            local=as_local,
            go={"topic": "", "id": ""},
            go_fault=None,
        )

    async def go(self, request: web.Request) -> web.Response:
        """The box "topic + id": straight to the job."""
        topic, id_ = (request.query.get(name, "").strip() for name in ("topic", "id"))
        if not is_topic_name(topic) or not is_good_id(id_):
            said = Said("Give the job's topic and its whole id.", tone="bad")
            return redirect(request, with_query("/jobs", topic=topic, id=id_), said)
        return redirect(request, job_path(topic, id_))

    async def new(self, request: web.Request) -> web.Response:
        fields = prefill(request)
        if request.query.get("copy"):
            fields |= await self._copied(request.query.get("topic", ""), request.query["copy"])
        return await self._show_form(request, Form(MultiDict(fields)))

    async def _copied(self, topic: str, id_: str) -> dict[str, str]:
        """The fields of a job that is to be pushed again; its id and time are left open."""
        if not is_topic_name(topic) or not is_good_id(id_):
            return {}
        found = await self._one.looker.look(topic, id_)
        if found is None:
            return {}
        job = found.facts
        body = job.body.decode(errors="replace")
        return {"topic": topic, "body": body, "priority": job.priority, "key": job.key}

    async def push(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        job = self._form.read(form)
        result = await self._form.push(form, job) if job is not None else None
        if job is None or result is None:
            return await self._show_form(request, form, 422)
        name = f"{job.topic}/{job.id}"
        await self._admin.note(request, "job.push", name, after=f"{result}, {len(job.body)} bytes")
        said = msgspec.structs.replace(SAID[result], values={"id": job.id})
        return redirect(request, job_path(job.topic, job.id), said)

    async def _show_form(self, request: web.Request, form: Form, status: int = 200) -> web.Response:
        return await self._pages.show(
            request, "jobs/new.html", tab="jobs", status=status, form=form, topics=self._topics()
        )

    def _topics(self) -> list[str]:
        return [topic.topic for topic in self._admin.topics.all()]

    async def confirm(self, request: web.Request) -> web.Response:
        """How many unfinished jobs would be cancelled, and a sample. Changes nothing."""
        if not visitor_of(request).may_change:
            raise Refusal(403, Say("You may look at everything here, but change nothing."))
        wanted = _bounded(request, self._admin.now_ms())
        if wanted.search is None or wanted.faults:
            return redirect(request, with_query("/jobs", **wanted.query))
        count, sample = await self._count(wanted.search)
        if not count.count:
            said = Said("There is nothing to do: no unfinished job matches.", tone="bad")
            return redirect(request, with_query("/jobs", **wanted.query), said)
        return await self._pages.show(
            request, "jobs/confirm.html", tab="jobs", wanted=wanted, count=count, sample=sample
        )

    async def _count(self, search: JobSearch) -> tuple[DeadCount, list[Line]]:
        total, cursor, sample = 0, None, list[Line]()
        give_up_ms = mono_ms() + COUNT_BUDGET_MS
        while True:
            lines, cursor = await self._finder.unfinished_page(search, _COUNT_PAGE, cursor)
            total += len(lines)
            sample = (sample + lines)[:SAMPLE]
            if cursor is None:
                return DeadCount(total, True), sample
            if total >= MOST_COUNTED or mono_ms() > give_up_ms:
                return DeadCount(total, False), sample

    async def start(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        names = ("topic", "key", "q", "from", "to")
        wanted = read_filter(MultiDict((name, form.text(name)) for name in names))
        if wanted.search is None or wanted.search.to_ms is None:
            raise Refusal(422, Say("Start from the list, please: this form is incomplete."))
        count = form.text("count")
        expected = int(count) if count.isascii() and count.isdigit() and len(count) < 18 else 0
        is_exact = form.text("exact") == "1"
        step = CancelStep(self._admin, self._finder, wanted.search)
        path = self._bulk.start(request, "cancel", wanted.query, (expected, is_exact), step)
        return redirect(request, path)


def _bounded(request: web.Request, now_ms: int) -> Filter:
    """The filter, ending now: what is pushed after the question is not meant."""
    query = MultiDict(request.query)
    for name in ("state", "id", "cursor"):
        query.popall(name, None)
    wanted = read_filter(query)
    if wanted.search is None:
        return wanted
    to_ms = min(wanted.search.to_ms or now_ms, now_ms)
    given = {**wanted.given, "to": str(to_ms)}
    return replace(wanted, given=given, search=replace(wanted.search, to_ms=to_ms))
