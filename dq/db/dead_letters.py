"""Dead jobs as people look for them: the latest death first, with its last words.

The table of deaths is read downwards, SCAN_ROWS at a time and for BUDGET_MS in all, so a look costs
the same however many jobs have died; what is asked for beyond that is compared row by row. A topic
with few dead jobs would be a needle in there: these are read by the index of their topic, at once.
A job that was pushed again since is not dead any more: its newest version alone counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.core.clock import mono_ms
from dq.db.database import Database
from dq.db.journal_store import read_page
from dq.db.purging import forget
from dq.db.replaced import same_job
from dq.db.rows import MessageRow, State
from dq.db.tables import deaths, messages, transitions

SCAN_ROWS = 500
SCAN_ROWS_BY_TIME = 2_000
"""Most deaths outside of the time are passed over without a look at their job."""
FEW_ROWS = 2_000
BUDGET_MS = 1_500
MOST_BADGE_SCAN = 1_000
_NEWEST = 2**62


class WantedDead(msgspec.Struct, frozen=True):
    """Which dead jobs; None leaves it open. `from_ms` <= time of death < `to_ms`; `q` is a part of
    the id, the key, the last attempt's detail or its reply."""

    topic: str | None = None
    q: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None


class DeadLine(msgspec.Struct, frozen=True):
    """A dead job and its last attempt. `no` numbers deaths; `size` is of the body, in bytes."""

    no: int
    version: bytes
    topic: str
    id: str
    bkey: str
    created: int
    attempt: int
    at_ms: int
    status: int | None
    detail: str
    reply: str
    size: int


class DeadPage(msgspec.Struct, frozen=True):
    """The latest deaths first. `below`: go on there, None when all was looked through; a page may
    be short, or empty, and yet have one."""

    jobs: list[DeadLine]
    below: int | None


class DeadCount(msgspec.Struct, frozen=True):
    """`is_all`: everything was counted; otherwise there are at least so many."""

    count: int
    is_all: bool


class DeadLetters:
    """Every method raises DatabaseAway."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, wanted: WantedDead, limit: int, below: int | None = None, budget_ms: int = BUDGET_MS
    ) -> DeadPage:
        """Up to `limit` dead jobs whose death has a number under `below`. Gets further with every
        call, however small the budget."""
        jobs: list[DeadLine] = []
        give_up_ms = mono_ms() + budget_ms
        async with self._database.read() as conn:
            is_few = await _has_few(conn, wanted.topic)
            floor: int | None = _NEWEST if below is None else below
            while floor is not None and len(jobs) < limit:
                left = limit - len(jobs)
                lowest = 0 if is_few else await _lowest(conn, floor, _scan_rows(wanted))
                query = _dead_between(lowest, floor, wanted, _columns(), is_few)
                query = query.order_by(deaths.c.no.desc()).limit(left)
                found = [DeadLine(**row._mapping) for row in await conn.execute(query)]
                jobs += found
                floor = found[-1].no if len(found) == left else lowest or None
                if mono_ms() >= give_up_ms:
                    break
        return DeadPage(jobs, floor)

    async def chosen(self, versions: Sequence[bytes]) -> list[DeadLine]:
        """Those of these versions that are dead still, the latest death first."""
        query = _dead(_columns()).where(deaths.c.version.in_(versions), _is_newest())
        async with self._database.read() as conn:
            rows = await conn.execute(query.order_by(deaths.c.no.desc()))
            return [DeadLine(**row._mapping) for row in rows]

    async def count(
        self, wanted: WantedDead, most: int, below: int | None = None, budget_ms: int = BUDGET_MS
    ) -> DeadCount:
        """How many there are, up to `most` and for as long as the budget lasts."""
        total = 0
        give_up_ms = mono_ms() + budget_ms
        async with self._database.read() as conn:
            is_few = await _has_few(conn, wanted.topic)
            floor: int | None = _NEWEST if below is None else below
            while floor is not None and total < most:
                lowest = 0 if is_few else await _lowest(conn, floor, _scan_rows(wanted))
                some = _dead_between(lowest, floor, wanted, [deaths.c.no], is_few)
                total += await _count(conn, some)
                floor = lowest or None
                if mono_ms() >= give_up_ms:
                    break
        return DeadCount(min(total, most), floor is None and total <= most)

    async def newest(self) -> int:
        """The number of the latest death, 0 before the first: what dies later stands above it."""
        async with self._database.read() as conn:
            return await conn.scalar(sa.select(sa.func.max(deaths.c.no))) or 0

    async def count_since(self, since_ms: int, most: int) -> int:
        """How many jobs died from `since_ms` on and still are dead, up to `most` and among the
        last MOST_BADGE_SCAN deaths."""
        async with self._database.read() as conn:
            lowest = await _lowest(conn, _NEWEST, MOST_BADGE_SCAN)
            recent = _dead_between(lowest, _NEWEST, WantedDead(from_ms=since_ms), [deaths.c.no])
            return await _count(conn, recent.limit(most))

    async def messages(self, versions: Sequence[bytes]) -> list[MessageRow]:
        """These versions with their bodies, a page of them as `read_page` says: ask
        again for the rest. In order of versions; those that are gone are left out."""
        sizes = sa.select(messages.c.version, sa.func.length(messages.c.body))
        sizes = sizes.where(messages.c.version.in_(versions)).order_by(messages.c.version)
        async with self._database.read() as conn:
            return await read_page(conn, sizes)

    async def is_dead(self, version: bytes) -> bool:
        """Whether this version is dead and its job's newest one."""
        query = sa.select(messages.c.version).where(
            messages.c.version == version, messages.c.state == State.DEAD, _is_newest()
        )
        async with self._database.read() as conn:
            return await conn.scalar(query) is not None

    async def forget(self, versions: Sequence[bytes]) -> int:
        """Forget these dead jobs with all that is known of them; how many there were. One that
        lives again, or is gone already, is left alone."""
        query = sa.select(messages.c.version).where(
            messages.c.version.in_(versions), messages.c.state == State.DEAD, _is_newest()
        )
        async with self._database.begin(to_disk=True) as conn:
            still_dead = list((await conn.execute(query)).scalars())
            await forget(conn, still_dead)
        return len(still_dead)


def _columns() -> list[sa.ColumnElement[Any]]:
    job, line = messages.c, transitions.c
    return [
        *(deaths.c.no, job.version, job.topic, job.id, job.bkey, job.created, job.attempt),
        *(line.at_ms, line.status, line.detail, line.reply),
        sa.func.length(job.body).label("size"),
    ]


async def _count(conn: AsyncConnection, rows: sa.Select[Any]) -> int:
    query = sa.select(sa.func.count()).select_from(rows.subquery())
    return await conn.scalar(query) or 0


async def _lowest(conn: AsyncConnection, below: int, rows: int) -> int:
    """The lowest number of the next `rows` deaths under `below`; 0 when there are no more."""
    query = sa.select(deaths.c.no).where(deaths.c.no < below).order_by(deaths.c.no.desc())
    return await conn.scalar(query.offset(rows - 1).limit(1)) or 0


def _scan_rows(wanted: WantedDead) -> int:
    is_by_time = wanted.from_ms is not None or wanted.to_ms is not None
    return SCAN_ROWS_BY_TIME if is_by_time else SCAN_ROWS


async def _has_few(conn: AsyncConnection, topic: str | None) -> bool:
    """Whether so few jobs of the topic are dead that all may be looked at."""
    if topic is None:
        return False
    dead = sa.select(messages.c.version).where(
        messages.c.topic == topic, messages.c.state == State.DEAD
    )
    return await _count(conn, dead.limit(FEW_ROWS + 1)) <= FEW_ROWS


def _dead_between(
    lowest: int,
    below: int,
    wanted: WantedDead,
    columns: Sequence[sa.ColumnElement[Any]],
    is_few: bool = False,
) -> sa.Select[Any]:
    """What is wanted of the deaths `lowest` <= no < `below`. `is_few`: the topic's few dead jobs
    are looked up first and their deaths then, otherwise the other way round."""
    job, line = messages.c, transitions.c
    no = _unindexed(deaths.c.no) if is_few else deaths.c.no
    query = _dead(columns, is_few).where(no >= lowest, no < below)
    if wanted.topic is not None:
        query = query.where((job.topic if is_few else _unindexed(job.topic)) == wanted.topic)
    if wanted.from_ms is not None:
        query = query.where(line.at_ms >= wanted.from_ms)
    if wanted.to_ms is not None:
        query = query.where(line.at_ms < wanted.to_ms)
    if wanted.q is not None:
        texts = (job.id, job.bkey, line.detail, line.reply)
        query = query.where(sa.or_(*(sa.func.instr(text, wanted.q) > 0 for text in texts)))
    # The dearest question comes last: it is asked only of what matches.
    return query.where(_is_newest())


def _dead(columns: Sequence[sa.ColumnElement[Any]], is_by_topic: bool = False) -> sa.Select[Any]:
    """Dead jobs with the line of their death: read from the deaths, or from the jobs of a topic.

    Both the death and its line know the version. By the line's, the job is looked up last of all,
    and only where the line is what was asked for; by the death's, no line but the last is read.
    """
    line, job = transitions.c, messages.c
    state = job.state if is_by_topic else _unindexed(job.state)
    version = deaths.c.version if is_by_topic else line.version
    return (
        sa.select(*columns)
        .select_from(deaths)
        .join(transitions, (line.writer == deaths.c.writer) & (line.pos == deaths.c.pos))
        .join(messages, job.version == version)
        .where(state == State.DEAD)
    )


def _unindexed(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The same value, by which no index can be read. SQLite keeps no figures about its tables: it
    would go through all dead jobs there are to find those of a few hundred deaths."""
    return sa.func.coalesce(column, column)


def _is_newest() -> sa.ColumnElement[bool]:
    newer = messages.alias("newer")
    is_newer = same_job(newer, messages) & (newer.c.version > messages.c.version)
    return sa.not_(sa.exists().where(is_newer, newer.c.state != State.REPLACED))
