"""The page about dead jobs: looking, redriving, throwing away; one, some, or all that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web
from multidict import MultiDict, MultiMapping

from dq.core.errors import DatabaseAway
from dq.db import dead_letters
from dq.db.dead_letters import DeadCount, DeadLine, WantedDead
from dq.journal.dead import Act, Done
from dq.web.bulk import Bulk, Kind
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.job_body import visible
from dq.web.job_search import PAGE, as_local, read_filter
from dq.web.pages import Pages, with_query
from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.visitor import visitor_of

MOST_COUNTED = 10_000
SAMPLE = 10
LIST_BUDGET_MS = 80
"""What a list has not found by then is behind its "go on"."""
SAMPLE_BUDGET_MS = 30
COUNT_BUDGET_MS = 50
"""Together as long as a list may look: the work itself finds what they did not."""
MOST_CHOSEN = 200


@dataclass(frozen=True)
class Asked:
    """What the list is asked for. `chosen`: versions of ticked jobs, none for all that match."""

    given: Mapping[str, str]
    faults: Mapping[str, str]
    wanted: WantedDead
    below: int | None
    chosen: tuple[bytes, ...] = ()

    @property
    def query(self) -> dict[str, str]:
        names = ("topic", "q", "from", "to")
        return {name: self.given[name] for name in names if self.given[name]}


class DeadPage:
    """Handlers of /dead."""

    def __init__(self, admin: Admin, pages: Pages, bulk: Bulk) -> None:
        self._admin = admin
        self._pages = pages
        self._bulk = bulk

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/dead", self.show),
            web.get("/dead/confirm", self.confirm),
            web.post("/dead/start", self.start),
        ]

    async def show(self, request: web.Request) -> web.Response:
        asked = read_asked(request.query)
        page, trouble = dead_letters.DeadPage([], None), ""
        if not asked.faults:
            try:
                page = await self._admin.dead.page(asked.wanted, PAGE, asked.below, LIST_BUDGET_MS)
            except DatabaseAway as error:
                trouble = error.detail
        return await self._pages.show(
            request,
            "dead.html",
            tab="dead",
            status=422 if asked.faults else 200,
            asked=asked,
            page=page,
            trouble=trouble,
            topics=[topic.topic for topic in self._admin.topics.all()],
            local=as_local,
            visible=visible,
        )

    async def confirm(self, request: web.Request) -> web.Response:
        """What would be done, how many it is about, and a sample. Changes nothing."""
        if not visitor_of(request).may_change:
            raise Refusal(403, Say("You may look at everything here, but change nothing."))
        act = _read_act(request.query.get("act", ""))
        asked = read_asked(request.query)
        if asked.faults:
            return redirect(request, with_query("/dead", **asked.query))
        below = await self._admin.dead.newest() + 1
        count, sample = await self._look(asked, below)
        # Without a tick, the button for the chosen ones must not be about all of them.
        is_none = request.query.get("only") == "chosen" and not asked.chosen
        if is_none or (count.is_all and not count.count):
            said = Said("There is nothing to do: no dead job is chosen.", tone="bad")
            return redirect(request, with_query("/dead", **asked.query), said)
        return await self._pages.show(
            request,
            "dead/confirm.html",
            tab="dead",
            act=act,
            asked=asked,
            count=count,
            sample=sample,
            below=below,
            visible=visible,
            chosen=[version.hex() for version in asked.chosen],
        )

    async def _look(self, asked: Asked, below: int) -> tuple[DeadCount, list[DeadLine]]:
        dead = self._admin.dead
        if asked.chosen:
            lines = await dead.chosen(asked.chosen)
            return DeadCount(len(lines), True), lines[:SAMPLE]
        # The sample is the first of them, so the rest is counted from there on.
        page = await dead.page(asked.wanted, SAMPLE, below, SAMPLE_BUDGET_MS)
        found = len(page.jobs)
        if page.below is None:
            return DeadCount(found, True), page.jobs
        more = await dead.count(asked.wanted, MOST_COUNTED - found, page.below, COUNT_BUDGET_MS)
        return DeadCount(found + more.count, more.is_all), page.jobs

    async def start(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        act = _read_act(form.text("act"))
        asked = read_asked(_as_query(form))
        if asked.faults or asked.below is None:
            raise Refusal(422, Say("Start from the list, please: this form is incomplete."))
        expected = int(form.text("count")) if _is_count(form.text("count")) else 0
        is_exact = form.text("exact") == "1"
        step = self._chosen_step(act, asked) if asked.chosen else self._step(act, asked)
        kind: Kind = act
        path = self._bulk.start(request, kind, asked.query, (expected, is_exact), step)
        return redirect(request, path)

    def _step(self, act: Act, asked: Asked) -> _Step:
        return _Step(self._admin, act, asked.wanted, asked.below)

    def _chosen_step(self, act: Act, asked: Asked) -> _ChosenStep:
        return _ChosenStep(self._admin, act, asked.chosen)


class _Step:
    """Goes down the list, a page at a time."""

    def __init__(self, admin: Admin, act: Act, wanted: WantedDead, below: int | None) -> None:
        self._admin = admin
        self._act: Act = act
        self._wanted = wanted
        self._below = below

    async def __call__(self) -> tuple[Done, bool]:
        done = await self._admin.dead.step(self._act, self._wanted, self._below)
        self._below = done.below
        return done, done.below is None


class _ChosenStep:
    """All that were ticked, at once."""

    def __init__(self, admin: Admin, act: Act, versions: tuple[bytes, ...]) -> None:
        self._admin = admin
        self._act: Act = act
        self._versions = versions

    async def __call__(self) -> tuple[Done, bool]:
        return await self._admin.dead.these(self._act, self._versions), True


def read_asked(query: MultiMapping[str]) -> Asked:
    """Never raises: what is wrong is told at its field."""
    plain = MultiDict(query)
    cursor = plain.popall("cursor", [""])[0]
    for name in ("state", "key", "id"):
        plain.popall(name, None)
    found = read_filter(plain)
    faults = dict(found.faults)
    below = int(cursor) if _is_count(cursor) else None
    if cursor and below is None:
        faults["cursor"] = "must be the cursor that the page before gave"
    search = found.search
    wanted = WantedDead()
    if search is not None:
        wanted = WantedDead(search.topic, search.q, search.from_ms, search.to_ms)
    given = {**found.given, "cursor": cursor}
    return Asked(given, faults, wanted, below, _read_chosen(query))


def _read_chosen(query: MultiMapping[str]) -> tuple[bytes, ...]:
    chosen = []
    for text in query.getall("ids", [])[:MOST_CHOSEN]:
        try:
            version = bytes.fromhex(text)
        except ValueError:
            continue  # not one of our boxes
        if len(version) == 16:
            chosen.append(version)
    return tuple(chosen)


def _as_query(form: Form) -> MultiDict[str]:
    names = ("topic", "q", "from", "to", "cursor")
    query = MultiDict((name, form.text(name)) for name in names)
    query.extend(("ids", one) for one in form.all("ids"))
    return query


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _read_act(text: str) -> Act:
    if text == "redrive":
        return "redrive"
    if text == "drop":
        return "drop"
    raise web.HTTPNotFound
