"""The journal: every push and every change of state, shipped from the writers' logs into SQL.

How it gets in is in shipping.py: each record is in here once or not yet. A row that SQL won't take
is handed back to be told about, and never stops the ones behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.db import purging, search
from dq.db.database import Contended, Database
from dq.db.replaced import same_job
from dq.db.rows import (
    Batch,
    Death,
    JobRecord,
    MessageRow,
    Page,
    Place,
    Purged,
    Rejected,
    State,
    Transition,
)
from dq.db.shipping import store_batches
from dq.db.tables import cursors, deaths, messages, transitions

PAGE_BYTES = 16 * 1024 * 1024
"""About as much of bodies as one page of `unfinished` holds."""

_TRIES = 3
_SQLITE_PACKET = 512 * 1024 * 1024


class JournalStore:
    """`digest_of(topic, id)` gives the 8 bytes under which the writers' records know a job."""

    def __init__(self, database: Database, digest_of: Callable[[str, str], bytes]) -> None:
        self._database = database
        self._digest_of = digest_of
        self._packet_bytes = 0

    async def ship(self, batch: Batch) -> list[Rejected]:
        """`ship_all` of one batch."""
        return await self.ship_all([batch])

    async def ship_all(self, batches: Sequence[Batch]) -> list[Rejected]:
        """Store batches of different logs and move their cursors, in one transaction; gives the
        rows that SQL won't take.

        Some 4,000 rows and 16 MiB are well inside the time bound. Raises CursorMoved when a log's
        cursor is not at `pos_before`, DatabaseAway; then nothing was stored.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._ship_once(batches)
            except Contended:
                continue
        return await self._ship_once(batches)

    async def _ship_once(self, batches: Sequence[Batch]) -> list[Rejected]:
        room = await self._packet_room()
        return await self._database.write(lambda conn: store_batches(conn, batches, room))

    async def _packet_room(self) -> int:
        if self._database.is_sqlite:
            return _SQLITE_PACKET
        if not self._packet_bytes:
            async with self._database.read() as conn:
                self._packet_bytes = await conn.scalar(sa.text("SELECT @@max_allowed_packet")) or 0
        return self._packet_bytes

    async def cursor(self, writer: bytes) -> int:
        """Up to which byte a writer's log is in the journal; 0 for one it never heard of."""
        async with self._database.read() as conn:
            return await _cursor(conn, writer)

    async def close_cursor(self, writer: bytes) -> None:
        """Note that this log is at its end: its writer is gone and all of it is here."""
        async with self._database.begin() as conn:
            await conn.execute(
                sa.update(cursors).where(cursors.c.writer == writer).values(closed=True)
            )

    async def open_cursors(self) -> dict[bytes, int]:
        """Every writer whose log is not closed, and how far it is in here."""
        query = sa.select(cursors.c.writer, cursors.c.pos).where(sa.not_(cursors.c.closed))
        async with self._database.read() as conn:
            return {row.writer: row.pos for row in await conn.execute(query)}

    async def history(self, topic: str, id_: str) -> JobRecord | None:
        """The newest version of a job with all that happened to it; None when not known."""
        newest = (
            sa.select(messages)
            .where(messages.c.digest == self._digest_of(topic, id_))
            .where(messages.c.topic == topic, messages.c.id == id_)
            .where(messages.c.state != State.REPLACED)
            .order_by(messages.c.version.desc())
            .limit(1)
        )
        async with self._database.read() as conn:
            row = (await conn.execute(newest)).first()
            if row is None:
                return None
            lines = await conn.execute(_lines(row.version))
            story = [Transition(**line._mapping) for line in lines]
            return JobRecord(MessageRow(**row._mapping), story)

    async def unfinished(
        self,
        after_version: bytes,
        limit: int,
        *,
        bucket: str | None = None,
        not_of: Sequence[str] = (),
        due_before_ms: int | None = None,
    ) -> list[MessageRow]:
        """A page of unfinished jobs, each in its newest version, in the order of versions.

        Begin with b"", go on after the last one's version, end at an empty page. A page may be
        shorter than `limit` when bodies are large. Stubs are left out: their push will come.
        `bucket`: only of that one, and, when `not_of` is given, of those that it does not name.
        """
        sizes = _unfinished_sizes().where(messages.c.version > after_version).limit(limit)
        if bucket is not None:
            is_here = messages.c.bucket == bucket
            is_homeless = messages.c.bucket.not_in(not_of)
            sizes = sizes.where(sa.or_(is_here, is_homeless) if not_of else is_here)
        if due_before_ms is not None:
            sizes = sizes.where(messages.c.due < due_before_ms)
        async with self._database.read() as conn:
            return await read_page(conn, sizes)

    async def unfinished_places(self, after_version: bytes, limit: int) -> list[Place]:
        """The same pages without the bodies, and without a look whether a newer version is there:
        for comparing with what the buckets hold."""
        columns = (messages.c[name] for name in Place.__struct_fields__)
        query = (
            sa.select(*columns)
            .where(messages.c.state == State.DELAYED, sa.not_(messages.c.stub))
            .where(messages.c.version > after_version)
            .order_by(messages.c.version)
            .limit(limit)
        )
        async with self._database.read() as conn:
            return [Place(**row._mapping) for row in await conn.execute(query)]

    async def unfinished_among(self, versions: Sequence[bytes]) -> list[MessageRow]:
        """Those of up to 1,000 versions that are unfinished now, in order; a page of `unfinished`
        at most, so ask again for what comes after the last one."""
        sizes = _unfinished_sizes().where(messages.c.version.in_(versions))
        async with self._database.read() as conn:
            return await read_page(conn, sizes)

    async def search(
        self,
        *,
        topic: str | None = None,
        state: State | None = None,
        key: str | None = None,
        q: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
        budget_ms: float = search.BUDGET_MS,
    ) -> Page:
        """Jobs, newest push first, each in its newest version.

        `q` is looked for, byte for byte, in ids, keys and bodies. `from_ms` <= created < `to_ms`.
        After about `budget_ms` the page ends, however little is on it; its cursor goes on. Raises
        Invalid for a cursor that no page gave.
        """
        wanted = search.Wanted(topic, state, key, q, from_ms, to_ms)
        async with self._database.read() as conn:
            return await search.find_page(conn, wanted, limit, cursor, budget_ms)

    async def deaths(self, after: int, limit: int) -> list[Death]:
        """Jobs that died, in the order of shipping, from number `after` (0 at first) on."""
        line, job = transitions.c, messages.c
        query = (
            sa.select(deaths.c.no, job.topic, job.id, job.version, line.at_ms, line.attempt)
            .add_columns(line.status, line.detail, line.reply, line.url)
            .join(transitions, (line.writer == deaths.c.writer) & (line.pos == deaths.c.pos))
            .join(messages, job.version == deaths.c.version)
            .where(deaths.c.no > after)
            .order_by(deaths.c.no)
            .limit(limit)
        )
        async with self._database.read() as conn:
            return [Death(**row._mapping) for row in await conn.execute(query)]

    async def next_topic(self, after: str) -> str:
        """The topics that the journal knows, one by one; "" after the last one."""
        query = sa.select(sa.func.min(messages.c.topic)).where(messages.c.topic > after)
        async with self._database.read() as conn:
            return await conn.scalar(query) or ""

    async def purge(
        self, topic: str, state: State, before_ms: int, after: bytes, limit: int
    ) -> Purged:
        """One small bite of forgetting what of a topic came into `state` before `before_ms`.

        Looks at up to `limit` versions after version `after` (b"" at first); a job's older
        versions go with it. Raises ValueError for DELAYED: that is still owed.
        """
        async with self._database.begin() as conn:
            return await purging.purge_bite(conn, topic, state, before_ms, after, limit)


async def _cursor(conn: AsyncConnection, writer: bytes) -> int:
    found = await conn.scalar(sa.select(cursors.c.pos).where(cursors.c.writer == writer))
    return found or 0


def _lines(version: bytes) -> sa.Select[Any]:
    names = [field.name for field in msgspec.structs.fields(Transition)]
    order = (transitions.c.stamp, transitions.c.writer, transitions.c.pos)
    query = sa.select(*(transitions.c[name] for name in names))
    return query.where(transitions.c.version == version).order_by(*order)


async def read_page(conn: AsyncConnection, sizes: sa.Select[Any]) -> list[MessageRow]:
    """The rows of the versions that `sizes` gives with the length of their bodies, in order:
    as many as PAGE_BYTES hold, at least one."""
    versions: list[bytes] = []
    room = PAGE_BYTES
    for version, size in await conn.execute(sizes):
        if versions and size > room:
            break
        versions.append(version)
        room -= size
    query = sa.select(messages).where(messages.c.version.in_(versions))
    rows = await conn.execute(query.order_by(messages.c.version))
    return [MessageRow(**row._mapping) for row in rows]


def _unfinished_sizes() -> sa.Select[Any]:
    newer = messages.alias("newer")
    has_newer = sa.exists().where(same_job(newer, messages), newer.c.version > messages.c.version)
    return (
        sa.select(messages.c.version, sa.func.length(messages.c.body))
        .where(messages.c.state == State.DELAYED, sa.not_(messages.c.stub), sa.not_(has_newer))
        .order_by(messages.c.version)
    )
