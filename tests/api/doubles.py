"""A schedule, a topic book and a journal in memory: the API's tests need failures on demand.

They do what dq.api.deps promises and nothing more; the real parts have tests of their own, and the
end-to-end tests run the API on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dq.api.deps import JobSearch
from dq.core.errors import DuplicateJob
from dq.core.topic import Topic
from dq.journal.audit import Audited
from dq.queue.records import PRIORITIES
from dq.queue.schedule import JobView, NewJob, Pushed, Told

CREATED_MS = 1_700_000_000_000


class MemorySchedule:
    """`failure` is raised by the next calls while it is set; `gate` holds pushes until it is."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], NewJob] = {}
        self.running: set[tuple[str, str]] = set()
        self.pushed: list[NewJob] = []
        self.failure: Exception | None = None
        self.failing_ids: dict[str, Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self._pushing: set[asyncio.Task[Pushed]] = set()

    def _fail(self, id_: str = "") -> None:
        if failure := self.failing_ids.get(id_, self.failure):
            raise failure

    async def push(self, job: NewJob) -> Pushed:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        self._fail(job.id)
        names = (job.topic, job.id)
        old = self.jobs.get(names)
        if old is not None and job.on_duplicate == "reject":
            raise DuplicateJob(*names)
        same = old is not None and job.absolute and old.due_ms == job.due_ms
        if old is not None and (job.on_duplicate == "keep" or (same and old.body == job.body)):
            return Pushed("kept", old.due_ms)
        self.jobs[names] = job
        self.pushed.append(job)
        return Pushed("replaced" if old else "created", job.due_ms)

    def begin_push(self, job: NewJob, told: Told) -> None:
        def tell(pushing: asyncio.Task[Pushed]) -> None:
            self._pushing.discard(pushing)
            error = pushing.exception()
            told(error if isinstance(error, Exception) else pushing.result())

        pushing = asyncio.create_task(self.push(job))
        self._pushing.add(pushing)
        pushing.add_done_callback(tell)

    async def cancel(self, topic: str, id_: str) -> Literal["cancelled", "running"] | None:
        self._fail(id_)
        if (topic, id_) in self.running:
            return "running"
        return "cancelled" if self.jobs.pop((topic, id_), None) else None

    async def reschedule(
        self, topic: str, id_: str, due_ms: int
    ) -> Literal["delayed", "running"] | None:
        self._fail(id_)
        if (topic, id_) in self.running:
            return "running"
        if (old := self.jobs.get((topic, id_))) is None:
            return None
        self.jobs[topic, id_] = NewJob(topic, id_, old.body, due_ms)
        return "delayed"

    async def find(self, topic: str, id_: str) -> JobView | None:
        self._fail(id_)
        if (job := self.jobs.get((topic, id_))) is None:
            return None
        return JobView(
            topic=topic,
            id=id_,
            state="running" if (topic, id_) in self.running else "delayed",
            due_ms=job.due_ms,
            attempt=0,
            body=job.body,
            priority=PRIORITIES[job.priority],
            key=job.key,
            created_ms=CREATED_MS,
            version=b"",
        )


class MemoryBook:
    """`elsewhere` are changes of other processes, seen at the next refresh."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.elsewhere: list[Topic] = []
        self.failure: Exception | None = None

    def get(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def all(self) -> Sequence[Topic]:
        return list(self.topics.values())

    def refresh(self) -> None:
        while self.elsewhere:
            topic = self.elsewhere.pop()
            self.topics[topic.topic] = topic

    async def put(self, topic: Topic) -> bool:
        if self.failure:
            raise self.failure
        is_new = topic.topic not in self.topics
        self.topics[topic.topic] = topic
        return is_new

    async def delete(self, name: str) -> bool:
        if self.failure:
            raise self.failure
        return self.topics.pop(name, None) is not None


@dataclass(frozen=True)
class Entry:
    """One line of a job's history."""

    at_ms: int
    state: str
    attempt: int
    status: int | None
    detail: str


@dataclass(frozen=True)
class Record:
    """A job in the journal."""

    topic: str
    id: str
    state: str = "done"
    due_ms: int = CREATED_MS + 1000
    attempt: int = 1
    body: bytes = b"{}"
    priority: str = "normal"
    key: str = ""
    created_ms: int = CREATED_MS
    history: list[Entry] = field(default_factory=list)

    @property
    def preview(self) -> bytes:
        return self.body[:10]

    @property
    def size_bytes(self) -> int:
        return len(self.body)


@dataclass(frozen=True)
class Page:
    """One page of a search."""

    jobs: list[Record]
    next_cursor: str | None


class MemoryJournal:
    """Answers a search with two jobs a page, the cursor being a place in the list."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self.searches: list[JobSearch] = []
        self.failure: Exception | None = None

    def add(self, record: Record) -> Record:
        self.records[record.topic, record.id] = record
        return record

    async def record(self, topic: str, id_: str) -> Record | None:
        if self.failure:
            raise self.failure
        return self.records.get((topic, id_))

    async def search(self, search: JobSearch) -> Page:
        if self.failure:
            raise self.failure
        self.searches.append(search)
        start = int(search.cursor or 0)
        records = list(self.records.values())
        more = str(start + 2) if len(records) > start + 2 else None
        return Page(records[start : start + 2], more)


class StagedAudit:
    """Answers what the test laid out; `gate` holds a restore until it is set."""

    def __init__(self) -> None:
        self.found = Audited()
        self.results: dict[tuple[str, str], str] = {}
        self.asked: list[bool] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, *, overdue: bool, adopt: bool) -> Audited:
        assert adopt
        self.asked.append(overdue)
        await self.gate.wait()
        if self.failure:
            raise self.failure
        return self.found

    async def restore_one(self, topic: str, id_: str) -> str | None:
        return self.results.get((topic, id_))
