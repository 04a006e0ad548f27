"""The journal for those who ask: what became of a job.

An answer is never older than the question: the logs of this host are shipped up to where they
ended when it was asked. Only a job whose node is away may be told as it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from dq.core.errors import DatabaseAway
from dq.db import rows
from dq.db.journal_store import JournalStore
from dq.db.rows import State
from dq.journal.shipped import wait_shipped
from dq.queue.records import PRIORITIES

CATCH_UP_MS = 3_000


class History(msgspec.Struct, frozen=True):
    """One line of a job's story."""

    at_ms: int
    state: str
    attempt: int
    status: int | None
    detail: str


class Record(msgspec.Struct, frozen=True):
    """A job as the journal knows it; `history` oldest first, empty in a search's answer."""

    topic: str
    id: str
    state: str
    due_ms: int
    attempt: int
    body: bytes
    priority: str
    key: str
    created_ms: int
    history: list[History] = []


class Line(msgspec.Struct, frozen=True):
    """A job as a search tells of it. `preview`: how its body begins, `size_bytes`: all of it."""

    topic: str
    id: str
    state: str
    due_ms: int
    attempt: int
    priority: str
    key: str
    created_ms: int
    preview: bytes
    size_bytes: int


class Lines(msgspec.Struct, frozen=True):
    """A page of a search, newest first; `next_cursor` None on the last one."""

    jobs: list[Line]
    next_cursor: str | None


class Wanted(Protocol):
    """What a search asks for; None leaves it open. `from_ms` <= time of the push < `to_ms`."""

    @property
    def topic(self) -> str | None: ...
    @property
    def state(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def q(self) -> str | None: ...
    @property
    def from_ms(self) -> int | None: ...
    @property
    def to_ms(self) -> int | None: ...
    @property
    def limit(self) -> int: ...
    @property
    def cursor(self) -> str | None: ...


class Reader:
    """Answers from SQL, once SQL has what the logs below `root` hold."""

    def __init__(self, root: Path, store: JournalStore) -> None:
        self._root = root
        self._store = store

    async def record(self, topic: str, id_: str) -> Record | None:
        """The newest version of a job with its history. Raises DatabaseAway."""
        await self._catch_up()
        found = await self._store.history(topic, id_)
        return None if found is None else _record(found)

    async def search(self, wanted: Wanted) -> Lines:
        """A page of jobs. Raises DatabaseAway; Invalid for a cursor that no page gave."""
        await self._catch_up()
        page = await self._store.search(
            topic=wanted.topic,
            state=None if wanted.state is None else State[wanted.state.upper()],
            key=wanted.key,
            q=wanted.q,
            from_ms=wanted.from_ms,
            to_ms=wanted.to_ms,
            limit=wanted.limit,
            cursor=wanted.cursor,
        )
        return Lines([_line(job) for job in page.jobs], page.cursor)

    async def _catch_up(self) -> None:
        if await wait_shipped(self._root, self._store, CATCH_UP_MS):
            raise DatabaseAway("the journal is behind the logs")


def _line(job: rows.JobSummary) -> Line:
    return Line(
        topic=job.topic,
        id=job.id,
        state=State(job.state).name.lower(),
        due_ms=job.due,
        attempt=job.attempt,
        priority=PRIORITIES[job.priority],
        key=job.bkey,
        created_ms=job.created,
        preview=job.preview,
        size_bytes=job.size,
    )


def _record(found: rows.JobRecord) -> Record:
    message = found.message
    pushed = History(message.created, "delayed", 0, None, "pushed")
    told = [
        History(line.at_ms, State(line.state).name.lower(), line.attempt, line.status, line.detail)
        for line in found.transitions
    ]
    return Record(
        topic=message.topic,
        id=message.id,
        state=State(message.state).name.lower(),
        due_ms=message.due,
        attempt=message.attempt,
        body=message.body,
        priority=PRIORITIES[message.priority],
        key=message.bkey,
        created_ms=message.created,
        history=[pushed, *told],
    )
