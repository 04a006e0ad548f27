"""What a list of jobs is asked for, and finding it.

A filter is read from the query alone, so each state of a list is an address. What is unfinished is
all the same to the journal; which of it is ready or running is asked of the nodes, and a node that
is away makes a state less exact, never a page missing. SQL is waited for a moment to have the last
pushes; when it lags, the page says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from multidict import MultiDict, MultiMapping

from dq.api.deps import JobSearch
from dq.api.instants import parse_fix_time
from dq.api.searches import read_search
from dq.core.clock import local_text
from dq.core.errors import Invalid
from dq.db.rows import State
from dq.journal.shipped import wait_shipped
from dq.queue.records import StoredJob
from dq.web.deps import Admin
from dq.web.job_body import visible

PAGE = 50
CATCH_UP_MS = 100
BUDGET_MS = 120
"""A page comes at once; what a long search has not found by then is behind its "go on"."""
PREVIEW_CHARS = 120
_PREVIEW_BYTES = 1024
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", re.ASCII)
_FIELDS = ("topic", "state", "id", "key", "q", "from", "to", "cursor")
STATES = ("unfinished", "delayed", "ready", "running", "done", "dead", "cancelled")


@dataclass(frozen=True)
class Filter:
    """`given`: the fields as they were typed, "" for none; `faults` by field. `search` is what it
    comes to, none while there are faults."""

    given: Mapping[str, str]
    faults: Mapping[str, str]
    search: JobSearch | None

    @property
    def query(self) -> dict[str, str]:
        """All but the cursor, as a query; what is not given is left out."""
        return {name: value for name, value in self.given.items() if value and name != "cursor"}

    @property
    def is_open(self) -> bool:
        """Nothing narrows it down."""
        return not self.query


class Line(msgspec.Struct, frozen=True):
    """A job in a list."""

    topic: str
    id: str
    state: str
    due_ms: int
    attempt: int
    key: str
    created_ms: int
    preview: str
    size: int


@dataclass(frozen=True)
class Found:
    """A page. `is_behind`: the newest pushes may be missing; `is_cut`: there are more than this
    list can show."""

    lines: Sequence[Line]
    cursor: str | None
    is_behind: bool = False
    is_cut: bool = False


def read_filter(query: MultiMapping[str]) -> Filter:
    """Never raises: what is wrong is told at its field."""
    given = {name: query.get(name, "").strip() for name in _FIELDS}
    asked: MultiDict[str] = MultiDict()
    faults: dict[str, str] = {}
    for name in ("topic", "key", "q", "cursor", "from", "to"):
        if given[name]:
            asked[name] = _as_instant(given[name]) if name in ("from", "to") else given[name]
    if given["state"] and given["state"] != "unfinished":
        asked["state"] = given["state"]
    try:
        search = read_search(asked)
    except Invalid as error:
        for fault in error.errors:
            faults[fault.field] = fault.message
        return Filter(given, faults, None)
    if given["state"] == "unfinished":
        search = replace(search, state="delayed")
    return Filter(given, faults, replace(search, limit=PAGE))


def _as_instant(text: str) -> str:
    """A local time, as the browser's own field for times writes it, becomes unix ms."""
    if not _LOCAL.fullmatch(text):
        return text
    whole = text.replace("T", " ")
    try:
        return str(parse_fix_time(whole if len(whole) == 19 else f"{whole}:00"))
    except ValueError:
        return text


def as_local(text: str) -> str:
    """What the browser's field for times shows for a bound: of unix ms, the local time."""
    if text.isascii() and text.isdigit() and len(text) < 15:
        return local_text(int(text)).replace(" ", "T")
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError):
        return ""


class JobFinder:
    """Finds pages of jobs. Raises DatabaseAway."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def find(self, wanted: Filter) -> Found:
        """`wanted` without faults."""
        assert wanted.search is not None
        state = wanted.given["state"]
        if state in ("ready", "running"):
            return await self._find_held(wanted, state)
        is_behind = await self.is_behind()
        cursor: str | None = None
        if wanted.given["id"]:
            lines = await self._find_by_id(wanted)
        else:
            lines, cursor = await self._search(wanted.search, wanted.search.limit)
        states = await self._states_of(lines)
        lines = [
            msgspec.structs.replace(line, state=states.get((line.topic, line.id), line.state))
            for line in lines
        ]
        if state == "delayed":
            lines = [line for line in lines if line.state == "delayed"]
        return Found(lines, cursor, is_behind)

    async def is_behind(self) -> bool:
        """Whether SQL lacks what was pushed before now; it gets a moment first."""
        root = self._admin.settings.data_dir / "log"
        return bool(await wait_shipped(root, self._admin.journal, CATCH_UP_MS))

    async def unfinished_page(
        self, search: JobSearch, limit: int, cursor: str | None
    ) -> tuple[list[Line], str | None]:
        """For working through all of them: no state is looked up."""
        return await self._search(replace(search, state="delayed", cursor=cursor), limit)

    async def _search(self, search: JobSearch, limit: int) -> tuple[list[Line], str | None]:
        page = await self._admin.journal.search(
            topic=search.topic,
            state=None if search.state is None else State[search.state.upper()],
            key=search.key,
            q=search.q,
            from_ms=search.from_ms,
            to_ms=search.to_ms,
            limit=limit,
            cursor=search.cursor,
            budget_ms=BUDGET_MS,
        )
        return [_line(job) for job in page.jobs], page.cursor

    async def _find_by_id(self, wanted: Filter) -> list[Line]:
        """Of every topic that is registered, or of the one that is given: no search needed."""
        assert wanted.search is not None
        topic, state = wanted.search.topic, wanted.search.state
        topics = [one.topic for one in self._admin.topics.all()] if topic is None else [topic]
        found = await self._admin.lookup.jobs([(name, wanted.given["id"]) for name in topics])
        lines = [_line(job) for job in found]
        return [one for one in lines if _fits(one, wanted) and state in (None, one.state)]

    async def _states_of(self, lines: Sequence[Line]) -> dict[tuple[str, str], str]:
        names = [(line.topic, line.id) for line in lines if line.state == "delayed"]
        return await self._admin.inspector.states(names) if names else {}

    async def _find_held(self, wanted: Filter, state: str) -> Found:
        """From the nodes themselves: of a million that wait, the few that run."""
        search = wanted.search
        assert search is not None
        jobs = await self._admin.inspector.held(state, search.topic, 4 * PAGE)
        text = search.q.encode() if search.q else b""
        some = [_held_line(job, state) for job in jobs if not text or _has(job, text)]
        lines = [line for line in some if _fits(line, wanted)]
        lines.sort(key=_created, reverse=True)
        return Found(lines[:PAGE], None, is_cut=len(jobs) == 4 * PAGE or len(lines) > PAGE)


def _fits(line: Line, wanted: Filter) -> bool:
    """Whether a job that was not found by a search is one that is asked for."""
    search, id_ = wanted.search, wanted.given["id"]
    assert search is not None
    return (
        (search.key is None or line.key == search.key)
        and (search.from_ms is None or line.created_ms >= search.from_ms)
        and (search.to_ms is None or line.created_ms < search.to_ms)
        and (not id_ or line.id == id_)
    )


def _has(job: StoredJob, text: bytes) -> bool:
    return text in job.id.encode() or text in job.key.encode() or text in job.body


def _line(job: Any) -> Line:
    return Line(
        topic=job.topic,
        id=job.id,
        state=State(job.state).name.lower(),
        due_ms=job.due,
        attempt=job.attempt,
        key=job.bkey,
        created_ms=job.created,
        preview=preview(job.preview),
        size=job.size,
    )


def _held_line(job: StoredJob, state: str) -> Line:
    return Line(
        topic=job.topic,
        id=job.id,
        state=state,
        due_ms=job.due_ms,
        attempt=job.retries + (state == "running"),
        key=job.key,
        created_ms=job.created_ms,
        preview=preview(job.body[:_PREVIEW_BYTES]),
        size=len(job.body),
    )


def preview(raw: bytes) -> str:
    """How a body begins, on one line."""
    text = visible(" ".join(raw.decode(errors="ignore").split()))
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"


def _created(line: Line) -> int:
    return line.created_ms
