"""Forgetting finished jobs in small bites, so that shipping never waits long behind it.

A version never goes before the older versions of its job: the next older one would stand as the
job's newest then, and a dead one that was redriven long ago would be dead again.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.db.replaced import same_job
from dq.db.rows import Purged, State
from dq.db.tables import deaths, messages, transitions

_OLDER_MOST = 5_000


async def purge_bite(
    conn: AsyncConnection, topic: str, state: State, before_ms: int, after: bytes, limit: int
) -> Purged:
    """See JournalStore.purge."""
    if state == State.DELAYED:
        raise ValueError("unfinished jobs are owed: they are not purged")
    before_us = before_ms * 1000
    page = (
        sa.select(messages.c.version, messages.c.changed)
        .where(messages.c.topic == topic, messages.c.state == state)
        .where(messages.c.version > after)
        .where(messages.c.version < before_us.to_bytes(8, "big"))
        .order_by(messages.c.version)
        .limit(limit)
    )
    looked = (await conn.execute(page)).all()
    old = [row.version for row in looked if row.changed < before_us]
    older = await _older_versions(conn, old)
    if len(older) == _OLDER_MOST:
        return Purged(await _remove(conn, older), after)
    removed = await _remove(conn, sorted({*old, *older}))
    return Purged(removed, looked[-1].version if len(looked) == limit else None)


async def forget(conn: AsyncConnection, versions: Sequence[bytes]) -> None:
    """Forget these finished versions at once, and the older versions of their jobs with them."""
    while len(older := await _older_versions(conn, versions)) == _OLDER_MOST:
        await _remove(conn, older)
    await _remove(conn, sorted({*versions, *older}))


async def _older_versions(conn: AsyncConnection, versions: Sequence[bytes]) -> list[bytes]:
    older = messages.alias("older")
    query = (
        sa.select(older.c.version)
        .distinct()
        .join(messages, same_job(older, messages) & (older.c.version < messages.c.version))
        .where(messages.c.version.in_(versions))
        .limit(_OLDER_MOST)
    )
    return list((await conn.execute(query)).scalars())


async def _remove(conn: AsyncConnection, versions: Sequence[bytes]) -> int:
    for table in (transitions, deaths, messages):
        await conn.execute(sa.delete(table).where(table.c.version.in_(versions)))
    return len(versions)
