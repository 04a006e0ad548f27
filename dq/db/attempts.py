"""The last attempts of one topic, as the journal knows them: what its page shows, and what a rule
is tried on.

Attempts have no order of their own by topic: those of the jobs that were pushed last are looked at,
up to a bound for each state, so a topic with millions of jobs costs no more than a small one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.db.database import Database
from dq.db.rows import State
from dq.db.tables import messages, transitions

_CHUNK = 500
_STATES = (State.DELAYED, State.DONE, State.DEAD)


class Attempt(msgspec.Struct, frozen=True):
    """One callback of a job. `state`: what the job became: DONE, DEAD, or DELAYED for a retry.
    `reply`: the first of it."""

    id: str
    at_ms: int
    state: int
    attempt: int
    status: int | None
    detail: str
    reply: str
    ms: int


class Attempts:
    """Every method raises DatabaseAway."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def last(self, topic: str, limit: int) -> list[Attempt]:
        """Up to `limit` attempts, the newest first, of the `limit` jobs in each state that were
        pushed last."""
        async with self._database.read() as conn:
            versions = await _newest(conn, topic, limit)
            found: list[tuple[int, Attempt]] = []
            for start in range(0, len(versions), _CHUNK):
                for row in await conn.execute(_attempts(versions[start : start + _CHUNK])):
                    values = dict(row._mapping)
                    found.append((values.pop("stamp"), Attempt(**values)))
        found.sort(key=_stamp, reverse=True)
        return [attempt for _, attempt in found[:limit]]

    async def count_unfinished(self, topic: str, most: int) -> int:
        """How many jobs of the topic wait or run, up to `most`; a version that a newer push has
        replaced may be counted until the journal has heard of it."""
        wanted = (messages.c.topic == topic) & (messages.c.state == State.DELAYED)
        some = sa.select(messages.c.version).where(wanted).limit(most).subquery()
        async with self._database.read() as conn:
            return await conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0


async def _newest(conn: AsyncConnection, topic: str, limit: int) -> list[bytes]:
    versions: list[bytes] = []
    for state in _STATES:
        wanted = (messages.c.topic == topic) & (messages.c.state == state)
        query = sa.select(messages.c.version).where(wanted)
        query = query.order_by(messages.c.version.desc()).limit(limit)
        versions += (await conn.execute(query)).scalars()
    return versions


def _attempts(versions: Sequence[bytes]) -> sa.Select[tuple[object, ...]]:
    line = transitions.c
    columns = (line.stamp, line.at_ms, line.state, line.attempt, line.status, line.detail)
    return (
        sa.select(messages.c.id, *columns, line.reply, line.ms)
        .join(messages, messages.c.version == line.version)
        .where(line.version.in_(versions), line.attempt > 0, line.state.in_(_STATES))
    )


def _stamp(one: tuple[int, Attempt]) -> int:
    return one[0]
