"""Ships the writers' logs to where they are read: into SQL, and into the files for people.

The two are independent: while SQL is away the files go on, and SQL catches up from the logs when
it is back. A log is removed when its writer is dead, its heir has applied it, both have it whole,
and it has been kept a while for nodes that come back with less than they had.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.faults import reach
from dq.core.pace import next_turn
from dq.db.journal_store import JournalStore
from dq.db.rows import Batch, ChangeRow, CursorMoved, MessageRow, State
from dq.journal.asked import Asked
from dq.journal.files import DayFiles
from dq.journal.heir import BURIED
from dq.journal.tail import STRETCH_BYTES, STRETCH_MOST, Stretch, Tail
from dq.log.frames import Head, LogDamaged
from dq.log.log import MAX_BUCKETS, end_of_records, segments
from dq.log.neighbours import Neighbour, Neighbours

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""What comes meanwhile costs less together: a transaction of some thousand rows writes each page
of an index once. Who waits for SQL asks, see dq.journal.asked."""

ASKED_EACH_MS = 40
AWAY_PAUSE_S = 1.0
TIDY_MS = 3_000
UNSEEN_MS = 2_000
"""By then all processes have noticed that a log is no longer there."""

KEEP_MS = 3_600_000
"""How long what is shipped is kept, for a node that comes back with an older state."""


class Shipper:
    """Reads every log of this host on. `buckets`: the names of those that exist."""

    def __init__(
        self,
        root: Path,
        store: JournalStore,
        files: DayFiles,
        buckets: Container[str],
        retire: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """`retire` is told of a writer whose log nobody sees any more."""
        self._neighbours = Neighbours(root)
        self._retired = root.with_name("retired")
        self._store = store
        self._files = files
        self._buckets = buckets
        self._retire = retire
        self._to_files: dict[bytes, Tail] = {}
        self._to_sql: dict[bytes, Tail] = {}
        self._sql_away_since_ms: float | None = None
        self._next_tidy_ms = 0.0
        self._is_time = asyncio.Event()
        self._has_news = asyncio.Event()
        self._asked = Asked(root, self._is_time.set)
        self.has_deaths = asyncio.Event()

    async def run_files(self) -> None:
        """Until cancelled. Everything else here goes by its pace."""
        turns = asyncio.create_task(self._keep_time())
        try:
            while True:
                self._is_time.clear()
                not_before_ms = clock.mono_ms() + ASKED_EACH_MS
                told = self._tell_all()
                if told or clock.mono_ms() >= self._next_tidy_ms:
                    self._has_news.set()
                if any(one.is_full for one in told):
                    await asyncio.sleep(0)
                    continue
                await self._is_time.wait()
                await asyncio.sleep(max(0.0, not_before_ms - clock.mono_ms()) / 1000)
        finally:
            turns.cancel()
            self._asked.close()

    async def _keep_time(self) -> None:
        while True:
            self._asked.listen()
            await next_turn(LOOK_S)
            self._is_time.set()

    async def run_sql(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled. `prepare` makes the schema, at first and whenever SQL was away."""
        is_prepared = False
        while True:
            self._has_news.clear()
            try:
                if not is_prepared:
                    await prepare()
                    is_prepared = True
                shipped = await self._ship_all()
            except DatabaseAway as error:
                self._tell_away(error)
                is_prepared = False
                await asyncio.sleep(AWAY_PAUSE_S)
                continue
            self._tell_back()
            if not any(one.is_full for one in shipped) and not self._lags(shipped):
                await self._has_news.wait()

    def _lags(self, shipped: list[Stretch]) -> bool:
        """Whether SQL is behind the files; not where nothing moves, as in a damaged log."""
        return bool(shipped) and any(tail.lags for tail in self._to_sql.values())

    def tell(self) -> bool:
        """Bring the files up to date, a stretch of each log; whether there was anything."""
        return bool(self._tell_all())

    async def ship(self) -> bool:
        """Bring SQL up to date, a stretch of each log; whether there was anything.

        Raises DatabaseAway.
        """
        return bool(await self._ship_all())

    def _tell_all(self) -> list[Stretch]:
        told: list[Stretch] = []
        for log in self._neighbours.look():
            if log.writer not in self._to_files:
                tail = Tail(log, self._files.cursor(log.head.writer), self._buckets)
                self._to_files[log.writer] = tail
                if log.writer in self._to_sql:
                    tail.follow(self._to_sql[log.writer])
        for group in _groups(self._to_files.values()):
            try:
                self._files.tell((tail.log.head.writer, stretch) for tail, stretch in group)
                reach("journal.told")
            except OSError as error:
                _log.error("the log files can't be written: %s", error)
                self._has_news.set()
                return []
            for tail, stretch in group:
                tail.advance(stretch)
                told.append(stretch)
        return told

    async def _ship_all(self) -> list[Stretch]:
        shipped: list[Stretch] = []
        for log in self._neighbours.look():
            if log.writer not in self._to_sql:
                tail = Tail(log, await self._store.cursor(log.writer), self._buckets)
                self._to_sql[log.writer] = tail
                if log.writer in self._to_files:
                    tail.follow(self._to_files[log.writer])
        for group in _groups(self._to_sql.values()):
            reach("journal.read")
            await self._ship_group(group)
            shipped += (stretch for _, stretch in group)
        if clock.mono_ms() >= self._next_tidy_ms:
            self._next_tidy_ms = clock.mono_ms() + TIDY_MS
            await self._tidy()
        return shipped

    async def _ship_group(self, group: Group) -> None:
        batches = [batch_of(stretch, tail.log.head) for tail, stretch in group]
        try:
            rejected = await self._store.ship_all(batches)
            reach("journal.committed")
        except CursorMoved as error:
            _log.warning("the journal is ahead of this process: %s", error)
            self._to_sql[error.writer].pos = error.actual
            self._has_news.set()
            return
        for one in rejected:
            row = one.row
            _log.error(
                "%s/%s: SQL refuses a row, it is set aside: %s", row.topic, row.id, one.reason
            )
        for tail, stretch in group:
            tail.advance(stretch)
        if any(change.state == State.DEAD for batch in batches for change in batch.changes):
            self.has_deaths.set()

    async def _tidy(self) -> None:
        """Away with what has been read and is not needed any more."""
        await self._forget_retired()
        for log in self._neighbours.look():
            if log.writer not in self._to_sql:
                continue
            if (log.folder / BURIED).exists():
                await self._remove_if_done(log)
            else:
                self._drop_old_segments(log)

    async def _remove_if_done(self, log: Neighbour) -> None:
        _, path = segments(log.folder)[-1]
        stat = path.stat()
        if self._to_sql[log.writer].pos < end_of_records(log.folder):
            return  # `high` may have been lost in a power cut: the heir says it anew
        is_empty = not any(log.high[:MAX_BUCKETS])
        if not is_empty and clock.now_ms() - stat.st_mtime * 1000 < KEEP_MS:
            return
        told = self._to_files.get(log.writer)
        if told is None or told.pos < self._to_sql[log.writer].pos:
            return
        self._retired.mkdir(exist_ok=True)
        log.folder.rename(self._retired / log.folder.name)
        reach("journal.retired")
        del self._to_sql[log.writer], self._to_files[log.writer]

    async def _forget_retired(self) -> None:
        """Logs that nobody sees any more. Their positions in the buckets must not go before: who
        still saw such a log would take the bucket for one that has lost it all."""
        for folder in self._retired.iterdir() if self._retired.is_dir() else ():
            if clock.now_ms() - folder.stat().st_ctime * 1000 < UNSEEN_MS:
                continue
            writer = bytes.fromhex(folder.name)
            await self._retire(writer)
            await self._store.close_cursor(writer)
            reach("journal.closed")
            shutil.rmtree(folder)
            reach("journal.removed")
            self._files.forget(folder.name)

    def _drop_old_segments(self, log: Neighbour) -> None:
        """Of a writer that lives: segments that all have read and that were kept long enough."""
        told = self._to_files.get(log.writer)
        done = min(self._to_sql[log.writer].pos, told.pos if told else 0)
        parts = segments(log.folder)
        for (_, path), (following, _) in pairwise(parts):
            if following > done or clock.now_ms() - path.stat().st_mtime * 1000 < KEEP_MS:
                return
            path.unlink()
            reach("journal.dropped")

    def _tell_away(self, error: DatabaseAway) -> None:
        if self._sql_away_since_ms is None:
            self._sql_away_since_ms = clock.mono_ms()
            _log.error("SQL is away; jobs go on, the journal catches up later: %s", error.detail)

    def _tell_back(self) -> None:
        if self._sql_away_since_ms is not None:
            seconds = (clock.mono_ms() - self._sql_away_since_ms) / 1000
            self._sql_away_since_ms = None
            _log.warning("SQL is back after %.1f s; the journal catches up", seconds)


Group = list[tuple[Tail, Stretch]]


def _groups(tails: Iterable[Tail]) -> Iterator[Group]:
    """A stretch of each log that has one, as many together as make a good transaction."""
    group: Group = []
    for tail in list(tails):
        stretch = _read(tail)
        if stretch is None:
            continue
        group.append((tail, stretch))
        if (
            sum(len(one.events) for _, one in group) >= STRETCH_MOST
            or sum(one.end - one.begin for _, one in group) >= STRETCH_BYTES
        ):
            yield group
            group = []
    if group:
        yield group


_damaged: set[Path] = set()


def _read(tail: Tail) -> Stretch | None:
    """The next stretch; a log that is damaged is told about once and left alone."""
    folder = tail.log.folder
    if folder in _damaged:
        return None
    try:
        return tail.read()
    except LogDamaged as error:
        _damaged.add(folder)
        _log.error("the log of %s (%s) is damaged: %s", tail.log.head.process, folder, error)
    except FileNotFoundError:
        _log.debug("%s is being removed", folder)
    return None


def batch_of(stretch: Stretch, head: Head) -> Batch:
    """The rows of a stretch."""
    messages: list[MessageRow] = []
    changes: list[ChangeRow] = []
    for event in stretch.events:
        if isinstance(event, MessageRow):
            messages.append(event)
        else:
            changes.append(event)
    return Batch(bytes.fromhex(head.writer), stretch.begin, stretch.end, messages, changes)
