"""Dead jobs, many at once: back on the schedule, or forgotten.

One way for the API, the command line and the web admin. The work goes in small pages, each read
anew from a journal that is up to date, so it may be cut at any point and begun again: what was done
is dead no more and is not found a second time. A job is redriven by a push that is rejected when
somebody else was quicker. What died after the work was asked for (above `below`) is left alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from dq.core import clock
from dq.core.errors import (
    DatabaseAway,
    DiskFull,
    DqError,
    DuplicateJob,
    NodeAway,
    NodeFull,
    Overloaded,
    TopicOffline,
    TopicUnknown,
)
from dq.core.topic import Topic
from dq.db.dead_letters import (
    BUDGET_MS,
    DeadCount,
    DeadLetters,
    DeadLine,
    DeadPage,
    WantedDead,
)
from dq.db.journal_store import JournalStore
from dq.db.rows import MessageRow
from dq.journal.shipped import wait_shipped
from dq.queue.schedule import NewJob, Pushed

PAGE = 100
CATCH_UP_MS = 3_000
MOST_REASONS = 5

Act = Literal["redrive", "drop"]


class Pusher(Protocol):
    """The part of a Schedule that is needed here."""

    def push(self, job: NewJob, /) -> Awaitable[Pushed]: ...


class Topics(Protocol):
    """The part of a TopicBook that is needed here."""

    def get(self, name: str, /) -> Topic | None: ...


class Done(msgspec.Struct):
    """What came of many. `gone`: not dead any more when their turn came. `failed` with its
    `reasons` in words; `trouble` is what ended the work early, "" otherwise. `below`: where to go
    on, None at the end."""

    matched: int = 0
    done: int = 0
    gone: int = 0
    failed: int = 0
    reasons: list[str] = []
    trouble: str = ""
    below: int | None = None

    def add(self, other: Done) -> None:
        """Count another page."""
        self.matched += other.matched
        self.done += other.done
        self.gone += other.gone
        self.failed += other.failed
        new = [reason for reason in other.reasons if reason not in self.reasons]
        self.reasons = (self.reasons + new)[:MOST_REASONS]
        self.trouble = self.trouble or other.trouble
        self.below = other.below


class DeadJobs:
    """`root`: the logs of this host, which are shipped before anything is decided."""

    def __init__(
        self,
        letters: DeadLetters,
        journal: JournalStore,
        schedule: Pusher,
        topics: Topics,
        root: Path,
    ) -> None:
        self._letters = letters
        self._journal = journal
        self._schedule = schedule
        self._topics = topics
        self._root = root

    async def page(
        self, wanted: WantedDead, limit: int, below: int | None = None, budget_ms: int = BUDGET_MS
    ) -> DeadPage:
        """To look at: as SQL has it now. Raises DatabaseAway."""
        return await self._letters.page(wanted, limit, below, budget_ms)

    async def chosen(self, versions: Sequence[bytes]) -> list[DeadLine]:
        """Those of these versions that are dead. Raises DatabaseAway."""
        return await self._letters.chosen(versions)

    async def count(
        self, wanted: WantedDead, most: int, below: int | None = None, budget_ms: int = BUDGET_MS
    ) -> DeadCount:
        """Raises DatabaseAway."""
        return await self._letters.count(wanted, most, below, budget_ms)

    async def count_since(self, since_ms: int, most: int) -> int:
        """Raises DatabaseAway."""
        return await self._letters.count_since(since_ms, most)

    async def newest(self) -> int:
        """The number of the latest death. Raises DatabaseAway."""
        return await self._letters.newest()

    async def step(
        self, act: Act, wanted: WantedDead, below: int | None = None, most: int = PAGE
    ) -> Done:
        """One page of the work: up to `most` (<= PAGE) of what is wanted below `below`.

        Raises DatabaseAway; then perhaps a part was done, and the same call does the rest.
        """
        await self._catch_up()
        page = await self._letters.page(wanted, min(most, PAGE), below)
        work = self._redrive if act == "redrive" else self._drop
        done = await work(page.jobs)
        done.below = page.below
        return done

    async def these(self, act: Act, versions: Sequence[bytes]) -> Done:
        """The work on these versions, some hundreds at most. Raises DatabaseAway."""
        await self._catch_up()
        lines = await self._letters.chosen(versions)
        return await (self._redrive if act == "redrive" else self._drop)(lines)

    async def run(
        self,
        act: Act,
        wanted: WantedDead,
        limit: int,
        below: int | None = None,
        told: Callable[[Done], None] = lambda done: None,
    ) -> Done:
        """Step by step until the end, `limit` jobs, or trouble. `told` after each page."""
        total = Done(below=below)
        while total.matched < limit:
            total.add(await self.step(act, wanted, total.below, limit - total.matched))
            told(total)
            if total.below is None or total.trouble:
                break
        return total

    async def one(self, act: Act, topic: str, id_: str) -> bool:
        """Redrive or drop one job; False when it isn't dead. Raises DatabaseAway, and of a push
        TopicUnknown, TopicOffline, NodeAway, Overloaded, DiskFull, NodeFull."""
        await self._catch_up()
        found = await self._journal.history(topic, id_)
        if found is None:
            return False
        row = found.message
        if act == "drop":
            return await self._letters.forget([row.version]) == 1
        if not await self._letters.is_dead(row.version):
            return False
        try:
            await self._push(row)
        except DuplicateJob:
            return False
        return True

    async def _catch_up(self) -> None:
        if await wait_shipped(self._root, self._journal, CATCH_UP_MS):
            raise DatabaseAway("the journal is behind the logs")

    async def _drop(self, lines: Sequence[DeadLine]) -> Done:
        forgotten = await self._letters.forget([line.version for line in lines])
        return Done(len(lines), forgotten, len(lines) - forgotten)

    async def _redrive(self, lines: Sequence[DeadLine]) -> Done:
        versions = [line.version for line in lines]
        found = Done(matched=len(lines), gone=len(lines))
        reasons: Counter[str] = Counter()
        while versions:
            rows = await self._letters.messages(versions)
            if not rows:
                break
            found.gone -= len(rows)
            ends = await asyncio.gather(*map(self._push, rows), return_exceptions=True)
            for end in ends:
                _count(end, found, reasons)
            read = {row.version for row in rows}
            versions = [version for version in versions if version not in read]
        found.reasons = [reason for reason, _ in reasons.most_common(MOST_REASONS)]
        return found

    async def _push(self, row: MessageRow) -> Pushed:
        topic = self._topics.get(row.topic)
        if topic is None:
            raise TopicUnknown(row.topic)
        if not topic.enabled:
            raise TopicOffline(row.topic)
        if row.stub:
            raise Bodiless(row.topic, row.id)
        again = NewJob(
            topic=row.topic,
            id=row.id,
            body=row.body,
            due_ms=clock.now_ms(),
            priority=row.priority,
            timeout_ms=row.timeout_ms,
            key=row.bkey,
            on_duplicate="reject",
        )
        return await self._schedule.push(again)


class Bodiless(DqError):
    """The journal knows of this job's end, but not its body."""

    def __init__(self, topic: str, id_: str) -> None:
        super().__init__(f"the body of {topic}/{id_} is not known (yet): it can't be pushed again")


def _count(end: Pushed | BaseException, found: Done, reasons: Counter[str]) -> None:
    if isinstance(end, DuplicateJob):
        found.gone += 1
    elif isinstance(end, DqError):
        found.failed += 1
        reasons[str(end)] += 1
        if isinstance(end, NodeAway | Overloaded | DiskFull | NodeFull):
            found.trouble = str(end)
    elif isinstance(end, BaseException):
        raise end
    else:
        found.done += 1
