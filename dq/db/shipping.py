"""What goes into the journal's tables at once: stretches of logs, with their cursors.

A batch is a stretch of one log. Its rows and the log's cursor are one transaction, so each record
is in the journal once or not yet, whatever is cut, repeated or shipped by two at a time. All that
is shipped together is written together: the price of a transaction is that of many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from dq.core.faults import reach
from dq.db import counts, upserts_sqlite
from dq.db.replaced import find_reused, mark_replaced
from dq.db.rows import Batch, ChangeRow, CursorMoved, MessageRow, Rejected, State
from dq.db.tables import counters, cursors, deaths
from dq.db.upserts import change_upsert, push_upsert, transition_insert

_MOVE = sa.update(cursors).where(
    cursors.c.writer == sa.bindparam("of"), cursors.c.pos == sa.bindparam("before")
)
_PLACE = sa.select(cursors.c.pos).where(cursors.c.writer == sa.bindparam("of"))
_TAKE_NUMBERS = (
    sa.update(counters)
    .where(counters.c.name == "deaths")
    .values(value=counters.c.value + sa.bindparam("some"))
)


def store_batches(conn: sa.Connection, batches: Sequence[Batch], room: int) -> list[Rejected]:
    """In a transaction that was begun: store batches of different logs and move their cursors;
    gives the rows that SQL won't take. `room`: the most bytes that a statement may hold.

    Raises CursorMoved when a log's cursor is not at `pos_before`, what the driver raises.
    """
    for batch in sorted(batches, key=_by_writer):
        _move_cursor(conn, batch)
    whole = _together(batches)
    reused = find_reused(conn, whole.messages)
    rejected = _insert_pushes(conn, whole.messages, room)
    unfit = _merge_changes(conn, sorted(whole.changes, key=_by_version), room)
    bad = {id(reject.row) for reject in unfit}
    for batch in batches:
        lines = [change for change in batch.changes if id(change) not in bad]
        unfit += _insert_lines(conn, batch.writer, lines, room)
    if reused:
        mark_replaced(conn, reused, max(push.stamp for push in whole.messages))
    counts.add_counts(conn, whole)
    _number_deaths(conn, batches)
    reach("journal.stored")
    return rejected + unfit


def _insert_pushes(conn: sa.Connection, rows: Sequence[MessageRow], room: int) -> list[Rejected]:
    if conn.dialect.name == "sqlite":
        return upserts_sqlite.insert_pushes(conn, rows)
    return push_upsert().run(conn, rows, room)


def _merge_changes(conn: sa.Connection, rows: Sequence[ChangeRow], room: int) -> list[Rejected]:
    if conn.dialect.name == "sqlite":
        return upserts_sqlite.merge_changes(conn, rows)
    return change_upsert().run(conn, rows, room)


def _insert_lines(
    conn: sa.Connection, writer: bytes, rows: Sequence[ChangeRow], room: int
) -> list[Rejected]:
    if conn.dialect.name == "sqlite":
        return upserts_sqlite.insert_lines(conn, writer, rows)
    return transition_insert(writer).run(conn, rows, room)


def _by_writer(batch: Batch) -> bytes:
    return batch.writer


def _by_version(change: ChangeRow) -> bytes:
    """All take rows in one order, so that two who ship at once wait rather than collide."""
    return change.version


def _together(batches: Sequence[Batch]) -> Batch:
    """Their rows as if they were of one log."""
    if len(batches) == 1:
        return batches[0]
    pushes = [push for batch in batches for push in batch.messages]
    changes = [change for batch in batches for change in batch.changes]
    return Batch(b"", 0, 0, pushes, changes)


def _cursor(conn: sa.Connection, writer: bytes) -> int:
    return conn.scalar(_PLACE, {"of": writer}) or 0


def _move_cursor(conn: sa.Connection, batch: Batch) -> None:
    """First of all: it takes the lock that keeps another shipper of this log out."""
    place = {"of": batch.writer, "before": batch.pos_before, "pos": batch.pos_after}
    if conn.execute(_MOVE, place).rowcount == 1:
        return
    actual = _cursor(conn, batch.writer)
    if actual != batch.pos_before:
        raise CursorMoved(batch.writer, actual)
    try:
        conn.execute(
            sa.insert(cursors).values(writer=batch.writer, pos=batch.pos_after, closed=False)
        )
    except sa.exc.IntegrityError as error:
        raise CursorMoved(batch.writer, _cursor(conn, batch.writer)) from error


def _number_deaths(conn: sa.Connection, batches: Iterable[Batch]) -> None:
    """Numbered last, under the counter's lock up to the commit: a reader never misses one that
    is committed after a higher number."""
    for batch in batches:
        dead = [change for change in batch.changes if change.state == State.DEAD]
        if not dead:
            continue
        conn.execute(_TAKE_NUMBERS, {"some": len(dead)})
        query = sa.select(counters.c.value).where(counters.c.name == "deaths")
        last = conn.execute(query).scalar_one()
        known = _numbered(conn, batch.writer, dead)
        rows = [
            {"no": no, "writer": batch.writer, "pos": change.pos, "version": change.version}
            for no, change in enumerate(dead, start=last - len(dead) + 1)
            if change.pos not in known
        ]
        if rows:
            conn.execute(sa.insert(deaths), rows)


def _numbered(conn: sa.Connection, writer: bytes, dead: Sequence[ChangeRow]) -> set[int]:
    positions = [change.pos for change in dead]
    query = sa.select(deaths.c.pos).where(deaths.c.writer == writer, deaths.c.pos.in_(positions))
    return set(conn.execute(query).scalars())
