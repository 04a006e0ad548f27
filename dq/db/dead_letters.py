"""Dead jobs as people look for them: the latest death first, with its last words.

The table of deaths is read downwards, SCAN_ROWS at a time and for BUDGET_MS in all, so a look costs
the same however many jobs have died; what is asked for beyond that is compared row by row. A job
that was pushed again since is not dead any more: its newest version alone counts.
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

SCAN_ROWS = 2_000
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
        """Up to `limit` dead jobs whose death has a number under `below`."""
        floor: int | None = _NEWEST if below is None else below
        jobs: list[DeadLine] = []
        give_up_ms = mono_ms() + budget_ms
        async with self._database.read() as conn:
            while floor is not None and len(jobs) < limit and mono_ms() < give_up_ms:
                found, floor = await _read_stretch(conn, wanted, floor, limit - len(jobs))
                jobs += found
        return DeadPage(jobs, floor)

    async def chosen(self, versions: Sequence[bytes]) -> list[DeadLine]:
        """Those of these versions that are dead still, the latest death first."""
        numbers = sa.select(deaths.c.no).where(deaths.c.version.in_(versions)).subquery()
        query = _dead_among(numbers, WantedDead(), _columns()).order_by(deaths.c.no.desc())
        async with self._database.read() as conn:
            return [DeadLine(**row._mapping) for row in await conn.execute(query)]

    async def count(
        self, wanted: WantedDead, most: int, below: int | None = None, budget_ms: int = BUDGET_MS
    ) -> DeadCount:
        """How many there are, up to `most` and for as long as the budget lasts."""
        floor: int | None = _NEWEST if below is None else below
        total = 0
        give_up_ms = mono_ms() + budget_ms
        async with self._database.read() as conn:
            while floor is not None and total < most and mono_ms() < give_up_ms:
                scanned = _scanned(floor)
                some = _dead_among(scanned, wanted, [deaths.c.no]).subquery()
                query = sa.select(sa.func.count()).select_from(some)
                total += await conn.scalar(query) or 0
                floor = await _next_floor(conn, scanned)
        return DeadCount(min(total, most), floor is None and total <= most)

    async def newest(self) -> int:
        """The number of the latest death, 0 before the first: what dies later stands above it."""
        async with self._database.read() as conn:
            return await conn.scalar(sa.select(sa.func.max(deaths.c.no))) or 0

    async def count_since(self, since_ms: int, most: int) -> int:
        """How many jobs died from `since_ms` on and still are dead, up to `most` and among the
        last MOST_BADGE_SCAN deaths."""
        recent = _scanned(_NEWEST, MOST_BADGE_SCAN)
        some = _dead_among(recent, WantedDead(from_ms=since_ms), [deaths.c.no]).limit(most)
        async with self._database.read() as conn:
            return await conn.scalar(sa.select(sa.func.count()).select_from(some.subquery())) or 0

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


async def _read_stretch(
    conn: AsyncConnection, wanted: WantedDead, below: int, limit: int
) -> tuple[list[DeadLine], int | None]:
    scanned = _scanned(below)
    query = _dead_among(scanned, wanted, _columns()).order_by(deaths.c.no.desc()).limit(limit)
    found = [DeadLine(**row._mapping) for row in await conn.execute(query)]
    if len(found) == limit:
        return found, found[-1].no
    return found, await _next_floor(conn, scanned)


def _columns() -> list[sa.ColumnElement[Any]]:
    job, line = messages.c, transitions.c
    return [
        *(deaths.c.no, job.version, job.topic, job.id, job.bkey, job.created, job.attempt),
        *(line.at_ms, line.status, line.detail, line.reply),
        sa.func.length(job.body).label("size"),
    ]


async def _next_floor(conn: AsyncConnection, scanned: sa.Subquery) -> int | None:
    extent = sa.select(sa.func.count(), sa.func.min(scanned.c.no)).select_from(scanned)
    count, lowest = (await conn.execute(extent)).one()
    return int(lowest) if count == SCAN_ROWS else None


def _scanned(below: int, rows: int = SCAN_ROWS) -> sa.Subquery:
    query = sa.select(deaths.c.no).where(deaths.c.no < below)
    return query.order_by(deaths.c.no.desc()).limit(rows).subquery()


def _dead_among(
    scanned: sa.Subquery, wanted: WantedDead, columns: Sequence[sa.ColumnElement[Any]]
) -> sa.Select[Any]:
    line, job = transitions.c, messages.c
    query = (
        sa.select(*columns)
        .select_from(scanned)
        .join(deaths, deaths.c.no == scanned.c.no)
        .join(transitions, (line.writer == deaths.c.writer) & (line.pos == deaths.c.pos))
        .join(messages, job.version == deaths.c.version)
        .where(job.state == State.DEAD, _is_newest())
    )
    if wanted.topic is not None:
        query = query.where(job.topic == wanted.topic)
    if wanted.from_ms is not None:
        query = query.where(line.at_ms >= wanted.from_ms)
    if wanted.to_ms is not None:
        query = query.where(line.at_ms < wanted.to_ms)
    if wanted.q is not None:
        texts = (job.id, job.bkey, line.detail, line.reply)
        query = query.where(sa.or_(*(sa.func.instr(text, wanted.q) > 0 for text in texts)))
    return query


def _is_newest() -> sa.ColumnElement[bool]:
    newer = messages.alias("newer")
    is_newer = same_job(newer, messages) & (newer.c.version > messages.c.version)
    return sa.not_(sa.exists().where(is_newer, newer.c.state != State.REPLACED))
