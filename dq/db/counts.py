"""How much went through each topic, and when: what charts and lists of topics show.

dq-journal adds to it in the transaction of the rows it ships, so each event is counted once, when
it is in SQL. A row holds one span of time of one topic: a minute for charts, a quarter of an hour
for days (they begin on one in every time zone), and all time. Minutes of all topics together have
rows of their own, so that a chart of everything needs sixty of them however many topics there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from dq.db.database import Database
from dq.db.rows import Batch, ChangeRow, State
from dq.db.tables import counts

MINUTE_MS = 60_000
QUARTER_MS = 900_000
DAY_MS = 86_400_000
KEEP_MINUTES_MS = 2 * DAY_MS
KEEP_QUARTERS_MS = 8 * DAY_MS
ALL_TOPICS = ""
"""Stands for all topics together; no topic is called so."""

T = TypeVar("T")
_CHUNK_ROWS = 300
_NAMES_MOST = 500


class Span(IntEnum):
    """What a row of `counts` covers from its `at_ms` on."""

    TOTAL = 0
    MINUTE = 1
    QUARTER = 2


_LENGTH_MS = {Span.MINUTE: MINUTE_MS, Span.QUARTER: QUARTER_MS}


class Tally(msgspec.Struct):
    """What happened. `failed`: attempts that failed, the last one of a job that died too."""

    pushed: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0


class TopicCounts(msgspec.Struct):
    """Since dq counts, and since the day began."""

    total: Tally = msgspec.field(default_factory=Tally)
    today: Tally = msgspec.field(default_factory=Tally)


class MinuteCounts(Tally):
    """One minute from `at_ms` on. `started`: first attempts; `late_ms_*`: by how much they began
    after their due time, the latest of them and all together."""

    at_ms: int = 0
    started: int = 0
    late_ms_max: int = 0
    late_ms_sum: int = 0

    @property
    def late_ms_mean(self) -> float:
        """0 where nothing was started."""
        return self.late_ms_sum / self.started if self.started else 0.0


_SUMMED = (*Tally.__struct_fields__, "started", "late_ms_sum")


class Counts:
    """Every method raises DatabaseAway."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_topics(self, names: Sequence[str], day_start_ms: int) -> dict[str, TopicCounts]:
        """An entry for each name, zeros for a topic that nothing was heard of. `day_start_ms`:
        when today began, on a quarter of an hour, not more than 8 days ago."""
        found = {name: TopicCounts() for name in names}
        async with self._database.read() as conn:
            for some in _pieces(list(found), _NAMES_MOST):
                for row in await conn.execute(_sums(Span.TOTAL, some, 0)):
                    found[row.topic].total = _tally(row)
                for row in await conn.execute(_sums(Span.QUARTER, some, day_start_ms)):
                    found[row.topic].today = _tally(row)
        return found

    async def per_minute(
        self, from_ms: int, to_ms: int, topic: str | None = None
    ) -> list[MinuteCounts]:
        """Every minute that begins from `from_ms` on and before `to_ms`, in order, those in which
        nothing happened too; of one topic or of all. They are kept for two days."""
        first_ms = -(-from_ms // MINUTE_MS) * MINUTE_MS
        query = sa.select(counts).where(
            counts.c.span == Span.MINUTE,
            counts.c.topic == (ALL_TOPICS if topic is None else topic),
            counts.c.at_ms.between(first_ms, to_ms - 1),
        )
        minutes = {at: MinuteCounts(at_ms=at) for at in range(first_ms, to_ms, MINUTE_MS)}
        async with self._database.read() as conn:
            for row in await conn.execute(query):
                numbers = {name: getattr(row, name) for name in MinuteCounts.__struct_fields__}
                minutes[row.at_ms] = MinuteCounts(**numbers)
        return list(minutes.values())

    async def purge(self, now_ms: int) -> None:
        """Forget minutes and quarters that nobody asks for any more; totals stay."""
        for span, keep_ms in ((Span.MINUTE, KEEP_MINUTES_MS), (Span.QUARTER, KEEP_QUARTERS_MS)):
            is_old = (counts.c.span == span) & (counts.c.at_ms < now_ms - keep_ms)
            async with self._database.begin() as conn:
                await conn.execute(sa.delete(counts).where(is_old))


def add_counts(conn: sa.Connection, batch: Batch) -> None:
    """Count what is being shipped, in its transaction."""
    rows = _rows(_by_minute(batch))
    mark = "?" if conn.dialect.name == "sqlite" else "%s"
    # All add in one order, so that two who ship at once wait rather than collide.
    for some in _pieces(sorted(rows.items(), key=_by_key), _CHUNK_ROWS):
        values = tuple(value for key, tally in some for value in (*key, *_numbers(tally)))
        conn.exec_driver_sql(_upsert(mark, len(some)), values)


def _by_minute(batch: Batch) -> dict[tuple[str, int], MinuteCounts]:
    found: dict[tuple[str, int], MinuteCounts] = defaultdict(MinuteCounts)
    for push in batch.messages:
        found[push.topic, push.created // MINUTE_MS * MINUTE_MS].pushed += 1
    for change in batch.changes:
        _count(found[change.topic, change.at_ms // MINUTE_MS * MINUTE_MS], change)
    return found


_DONE, _CANCELLED, _DEAD = int(State.DONE), int(State.CANCELLED), int(State.DEAD)


def _count(tally: MinuteCounts, change: ChangeRow) -> None:
    state = change.state
    if state == _DONE:
        tally.delivered += 1
    elif state == _CANCELLED:
        tally.cancelled += 1
    elif state == _DEAD:
        tally.dead += 1
        tally.failed += 1
    elif change.attempt:  # else only its due time was changed
        tally.failed += 1
    if (late_ms := change.late_ms) is not None:
        tally.started += 1
        tally.late_ms_sum += late_ms
        if late_ms > tally.late_ms_max:
            tally.late_ms_max = late_ms


def _rows(
    minutes: dict[tuple[str, int], MinuteCounts],
) -> dict[tuple[Span, str, int], MinuteCounts]:
    rows: dict[tuple[Span, str, int], MinuteCounts] = {}
    for (topic, at_ms), tally in minutes.items():
        _add(rows, (Span.TOTAL, topic, 0), tally)
        _add(rows, (Span.QUARTER, topic, at_ms - at_ms % QUARTER_MS), tally)
        _add(rows, (Span.MINUTE, topic, at_ms), tally)
        _add(rows, (Span.MINUTE, ALL_TOPICS, at_ms), tally)
    return rows


def _add(
    rows: dict[tuple[Span, str, int], MinuteCounts], key: tuple[Span, str, int], more: MinuteCounts
) -> None:
    row = rows.setdefault(key, MinuteCounts())
    for name in _SUMMED:
        setattr(row, name, getattr(row, name) + getattr(more, name))
    row.late_ms_max = max(row.late_ms_max, more.late_ms_max)


_NUMBERS = (*_SUMMED, "late_ms_max")


def _numbers(tally: MinuteCounts) -> Iterable[int]:
    return (getattr(tally, name) for name in _NUMBERS)


def _upsert(mark: str, count: int) -> str:
    row = f"({', '.join([mark] * (3 + len(_NUMBERS)))})"
    into = f"INSERT INTO counts (span, topic, at_ms, {', '.join(_NUMBERS)}) VALUES "
    is_sqlite = mark == "?"
    new = "excluded.{}" if is_sqlite else "VALUES({})"
    then = (
        "ON CONFLICT (span, topic, at_ms) DO UPDATE SET" if is_sqlite else "ON DUPLICATE KEY UPDATE"
    )
    sums = [f"{name} = {name} + {new.format(name)}" for name in _SUMMED]
    most = new.format("late_ms_max")
    sums.append(f"late_ms_max = CASE WHEN {most} > late_ms_max THEN {most} ELSE late_ms_max END")
    return f"{into}{', '.join([row] * count)} {then} {', '.join(sums)}"


def _sums(span: Span, names: Sequence[str], from_ms: int) -> sa.Select[Any]:
    sums = (sa.func.sum(counts.c[name]).label(name) for name in Tally.__struct_fields__)
    return (
        sa.select(counts.c.topic, *sums)
        .where(counts.c.span == span, counts.c.topic.in_(names), counts.c.at_ms >= from_ms)
        .group_by(counts.c.topic)
    )


def _by_key(row: tuple[tuple[Span, str, int], MinuteCounts]) -> tuple[Span, str, int]:
    return row[0]


def _pieces(whole: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (whole[start : start + most] for start in range(0, len(whole), most))


def _tally(row: sa.Row[Any]) -> Tally:
    return Tally(**{name: int(getattr(row, name)) for name in Tally.__struct_fields__})
