"""Which versions a push has replaced: of a job only its newest one may be unfinished.

Versions arrive in any order, as each writer's log is shipped by itself, so a push may come after
the one that replaced it. Seen from each push it is enough to look at its two neighbours in time:
what lies further away was marked when its own neighbour came. Stubs are passed over; they are
looked at when their push arrives. Two hosts that ship neighbours in the same instant may miss
each other, so who reads unfinished versions asks again whether there is a newer one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from dq.db.rows import MessageRow, State
from dq.db.tables import messages
from dq.db.upserts import CHUNK_ROWS


def find_reused(conn: sa.Connection, pushes: Sequence[MessageRow]) -> list[bytes]:
    """Of these pushes, asked before they are written, the versions of jobs that have others."""
    counts = Counter(push.digest for push in pushes)
    digests = list(counts)
    known: set[bytes] = {digest for digest, count in counts.items() if count > 1}
    is_sqlite = conn.dialect.name == "sqlite"
    mark = "?" if is_sqlite else "%s"
    for start in range(0, len(digests), CHUNK_ROWS):
        some = digests[start : start + CHUNK_ROWS]
        marks = ",".join([mark] * len(some))
        query = f"SELECT digest FROM messages WHERE digest IN ({marks})"
        # To the driver of SQLite a bytearray is less work, see upserts_sqlite.py.
        values = tuple(map(bytearray, some)) if is_sqlite else tuple(some)
        known.update(conn.exec_driver_sql(query, values).scalars())
    return [push.version for push in pushes if push.digest in known] if known else []


def mark_replaced(conn: sa.Connection, versions: Sequence[bytes], stamp: int) -> None:
    """Set aside what these pushes replace, and those of them that were replaced already."""
    replaced: set[bytes] = set()
    for start in range(0, len(versions), CHUNK_ROWS):
        some = versions[start : start + CHUNK_ROWS]
        for version, earlier, is_older in conn.execute(_neighbours(some)):
            replaced.update([earlier] if earlier is not None else [])
            replaced.update([version] if is_older else [])
    marked = sorted(replaced)
    for start in range(0, len(marked), CHUNK_ROWS):
        conn.execute(
            sa.update(messages)
            .where(messages.c.version.in_(marked[start : start + CHUNK_ROWS]))
            .where(messages.c.state == State.DELAYED)
            .values(state=State.REPLACED, changed=stamp)
        )


def same_job(one: sa.FromClause, other: sa.FromClause) -> sa.ColumnElement[bool]:
    """Digests may collide: the names decide."""
    return sa.and_(
        one.c.digest == other.c.digest, one.c.topic == other.c.topic, one.c.id == other.c.id
    )


def _neighbours(versions: Sequence[bytes]) -> sa.Select[Any]:
    push = messages.alias("push")
    other = messages.alias("other")
    is_other = sa.and_(same_job(other, push), sa.not_(other.c.stub))
    earlier = (
        sa.select(other.c.version)
        .where(is_other, other.c.version < push.c.version)
        .order_by(other.c.version.desc())
        .limit(1)
        .scalar_subquery()
    )
    newer = sa.exists().where(is_other, other.c.version > push.c.version)
    return sa.select(push.c.version, earlier, newer).where(push.c.version.in_(versions))
