"""What the API needs from the rest of dq, and nothing more.

The protocols state it method by method; the real parts satisfy them, and tests stage failures
that can't be had on demand. Every method may raise what its sentence names, and is bounded in time
by its owner: the API waits for it, however long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from dq.core.settings import Settings
from dq.core.topic import Topic
from dq.db.token_book import TokenBook as ApiTokens
from dq.journal.dead import DeadJobs
from dq.queue.schedule import JobView, NewJob, Pushed, Told

T = TypeVar("T")


class HistoryEntry(Protocol):
    """One transition of a job. `status`: the HTTP status of an attempt, None without one."""

    @property
    def at_ms(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def status(self) -> int | None: ...
    @property
    def detail(self) -> str: ...


class JobRecord(Protocol):
    """A job as the journal knows it: its newest version. `state` and `priority` by name, and what
    is unfinished is `delayed`; `attempt`: attempts begun; `history`: all transitions in order."""

    @property
    def topic(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def due_ms(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def priority(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def history(self) -> Sequence[HistoryEntry]: ...


class JobLine(Protocol):
    """A job as a search tells of it. `preview`: how its body begins, `size_bytes`: all of it."""

    @property
    def topic(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def due_ms(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def priority(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def preview(self) -> bytes: ...
    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class JobSearch:
    """What to look for in the journal; None leaves it open. `state`: delayed (all that is
    unfinished), done, dead or cancelled; `q`: a part of id, key or body; `from_ms` (inclusive)
    and `to_ms` (exclusive) bound the time of the push."""

    topic: str | None = None
    state: str | None = None
    key: str | None = None
    q: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 50
    cursor: str | None = None


class SearchPage(Protocol):
    """One page, newest first. `next_cursor`: None on the last one; a page may be short, or even
    empty, and yet have one."""

    @property
    def jobs(self) -> Sequence[JobLine]: ...
    @property
    def next_cursor(self) -> str | None: ...


class Schedule(Protocol):
    """The producer's door to the queue (dq/queue/schedule.py)."""

    def push(self, job: NewJob, /) -> Awaitable[Pushed]:
        """Begun at once, and brought to its end even if nobody waits for it. Raises DuplicateJob,
        NodeAway, NodeFull, Overloaded, DiskFull when it is awaited."""

    def begin_push(self, job: NewJob, told: Told, /) -> None:
        """The same; `told` is called once with what it came to, later or at once."""

    async def cancel(self, topic: str, id: str, /) -> Literal["cancelled", "running"] | None:
        """None: no unfinished job of that id. Raises NodeAway, Overloaded, DiskFull."""

    async def reschedule(
        self, topic: str, id: str, due_ms: int, /
    ) -> Literal["delayed", "running"] | None:
        """`running`: nothing was changed; None as in `cancel`. Raises the same."""

    async def find(self, topic: str, id: str, /) -> JobView | None:
        """An unfinished job. Raises NodeAway."""


class TopicBook(Protocol):
    """The registered topics (dq/db/topic_book.py), read from memory."""

    def get(self, name: str, /) -> Topic | None: ...
    def all(self) -> Sequence[Topic]: ...

    def refresh(self) -> Any:
        """Reads what other processes have changed; cheap when nothing has."""

    async def put(self, topic: Topic, /) -> bool:
        """True if it is new. Raises DatabaseAway."""

    async def delete(self, name: str, /) -> bool:
        """False if there is none. Raises DatabaseAway."""


class JournalReader(Protocol):
    """The memory of all jobs, brought up to date before each answer."""

    async def record(self, topic: str, id: str, /) -> JobRecord | None:
        """Raises DatabaseAway."""

    async def search(self, search: JobSearch, /) -> SearchPage:
        """Raises DatabaseAway; Invalid for a cursor it did not make."""


class Audited(Protocol):
    """What a restore found: counts, and the nodes that could not be asked. A msgspec.Struct."""

    looked_at: int
    restored: int
    rescheduled: int
    overdue_left: int
    elsewhere: int
    nodes_away: list[str]


class Audit(Protocol):
    """Compares journal and nodes, and puts back what is missing (dq/journal/audit.py)."""

    async def run(self, *, overdue: bool, adopt: bool) -> Audited:
        """Raises DatabaseAway, NodeFull."""

    async def restore_one(self, topic: str, id: str, /) -> str | None:
        """`restored` or `present`; the state of a finished job; None for one that never was.
        Raises NodeAway, NodeFull, DatabaseAway."""


@dataclass(frozen=True, slots=True)
class Api:
    """`ready` answers each part's state by its name: "ok", "unknown", or what is missing, in
    words; a part that is neither of the first two makes the instance not ready. `dead` None: the
    calls about many dead jobs are not served. `token_book`: the tokens made in the admin."""

    settings: Settings
    schedule: Schedule
    topics: TopicBook
    journal: JournalReader
    ready: Callable[[], Mapping[str, str]]
    audit: Audit
    dead: DeadJobs | None = None
    token_book: ApiTokens | None = None


class Commits:
    """Runs what changes a job to its end, whatever becomes of the request that asked for it.

    A client that hangs up, or a server that is told to stop, must not cut a write between the
    log and the node.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, commit: Awaitable[T]) -> T:
        """The result of `commit`; it goes on even if the caller is cancelled."""
        return await asyncio.shield(self.begin(commit))

    def begin(self, commit: Awaitable[T]) -> asyncio.Future[T]:
        """Have `commit` run to its end; what it comes to, to be awaited or not."""
        running = asyncio.ensure_future(commit)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def finish(self) -> None:
        """Wait for all that is still running."""
        if self._running:
            await asyncio.wait(self._running)
