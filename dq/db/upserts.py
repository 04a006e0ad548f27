"""Many rows in one INSERT, written out by hand for MySQL; SQLite has dq/db/upserts_sqlite.py.

One statement of some hundred rows is what makes shipping fast: aiomysql's executemany goes row by
row when its pattern does not match, and SQLAlchemy renders a VALUES of thousands of parameters
anew for each length. Nothing here raises for a bad row: rows are halved until the one that the
database won't take stands alone, and that one is handed back.

How two reports of one version are merged, whichever comes first: the higher rank of state wins,
within one state the later stamp. A finished version never comes alive again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from dq.db.database import is_data_error
from dq.db.rows import ChangeRow, MessageRow, Rejected, State
from dq.db.tables import messages, transitions

CHUNK_ROWS = 500
CHUNK_BYTES = 4 * 1024 * 1024
_STATEMENT_BYTES = 4 * 1024
_ROW_BYTES = 256

Row = TypeVar("Row", MessageRow, ChangeRow)

_RANK = (
    f"(CASE {{}} WHEN {State.DELAYED} THEN 0 WHEN {State.REPLACED} THEN 1 WHEN {State.DEAD} THEN 2"
    f" WHEN {State.CANCELLED} THEN 3 ELSE 4 END)"
)
_OUTRANKS = f"{_RANK.format('{state}')} > {_RANK.format('state')}"
_WINS = f"({_OUTRANKS} OR ({{state}} = state AND {{changed}} > changed))"

# MySQL assigns from left to right and sees what it has assigned: state and changed come last.
_MERGE = (
    "attempt = CASE WHEN {attempt} > attempt THEN {attempt} ELSE attempt END",
    f"changed = CASE WHEN {_WINS} THEN {{changed}} ELSE changed END",
    f"state = CASE WHEN {_OUTRANKS} THEN {{state}} ELSE state END",
)
MERGE_PUSH = (
    *(f"{name} = {{{name}}}" for name in ("seq", "bucket", "created", "priority")),
    *(f"{name} = {{{name}}}" for name in ("timeout_ms", "bkey", "body")),
    f"due = CASE WHEN {_WINS} OR due = 0 THEN {{due}} ELSE due END",
    "stub = {stub}",
    *_MERGE,
)
MERGE_CHANGE = (
    f"due = CASE WHEN {_WINS} AND {{due}} > 0 THEN {{due}} ELSE due END",
    *_MERGE,
)

STUB = {"seq": "0", "bucket": "''", "priority": "1", "timeout_ms": "0", "bkey": "''"}
STUB |= {"body": "x''", "stub": "1"}


class Upsert(Generic[Row]):
    """One multi-row INSERT: where, what to do about a row that is there, a row's values.

    `fixed`: columns that have one value in all rows, written out; a driver that puts the values
    into the text by itself takes its time for each.
    """

    def __init__(
        self,
        table: sa.Table,
        merge: Sequence[str],
        values: Callable[[Row], tuple[Any, ...]],
        size: Callable[[Row], int],
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        self._columns = [column.name for column in table.columns]
        self._table = table
        self._merge = merge
        self._values: Callable[[Row], tuple[Any, ...]] = values
        self._size: Callable[[Row], int] = size
        self._fixed = fixed or {}

    def run(self, conn: sa.Connection, rows: Sequence[Row], packet_bytes: int) -> list[Rejected]:
        """Write all rows that the database takes, in chunks; the others come back.

        `packet_bytes` is the most that one statement may hold.
        """
        most = packet_bytes - _STATEMENT_BYTES
        rejected: list[Rejected] = []
        for chunk, size in chunks(rows, self._size, min(CHUNK_BYTES, most)):
            if size > most:
                reason = f"larger than what the server takes at once, {packet_bytes} bytes"
                rejected += [Rejected(row, reason) for row in chunk]
            else:
                rejected += halve(self._insert, conn, chunk)
        return rejected

    def _insert(self, conn: sa.Connection, rows: Sequence[Row]) -> None:
        flat = tuple(chain.from_iterable(map(self._values, rows)))
        conn.exec_driver_sql(self._sql(len(rows)), flat)

    def _sql(self, count: int) -> str:
        row = f"({', '.join(self._fixed.get(name, '%s') for name in self._columns)})"
        into = f"INSERT INTO {self._table.name} ({', '.join(self._columns)}) VALUES "
        return into + ", ".join([row] * count) + self._on_conflict()

    def _on_conflict(self) -> str:
        names = {name: f"VALUES({name})" for name in self._columns}
        # INSERT IGNORE would also cut what is too long, in silence.
        sets = ", ".join(part.format(**names) for part in self._merge) or "writer = writer"
        return f" ON DUPLICATE KEY UPDATE {sets}"


Insert = Callable[[sa.Connection, Sequence[Row]], None]


def halve(insert: Insert[Row], conn: sa.Connection, rows: Sequence[Row]) -> list[Rejected]:
    """`insert` all that the database takes; the others come back. What was inserted before a bad
    row comes again: a row that is there already must change nothing."""
    try:
        insert(conn, rows)
    except Exception as error:
        if not is_data_error(error):
            raise
        if len(rows) == 1:
            return [Rejected(rows[0], str(getattr(error, "orig", None) or error))]
        middle = len(rows) // 2
        return halve(insert, conn, rows[:middle]) + halve(insert, conn, rows[middle:])
    return []


def chunks(
    rows: Iterable[Row], size_of: Callable[[Row], int], chunk_bytes: int
) -> Iterator[tuple[list[Row], int]]:
    """The rows in order, in pieces of up to CHUNK_ROWS and `chunk_bytes`, or of one larger row;
    with each piece its bytes."""
    chunk: list[Row] = []
    taken = 0
    for row in rows:
        size = size_of(row)
        if chunk and (len(chunk) == CHUNK_ROWS or taken + size > chunk_bytes):
            yield chunk, taken
            chunk, taken = [], 0
        chunk.append(row)
        taken += size
    if chunk:
        yield chunk, taken


def push_upsert() -> Upsert[MessageRow]:
    """A push: fills a stub, keeps the further state; the same push again changes nothing."""
    return Upsert(messages, MERGE_PUSH, _push_values, _push_size)


def change_upsert() -> Upsert[ChangeRow]:
    """A change, applied to its version; a stub when its push has not been shipped yet."""
    return Upsert(messages, MERGE_CHANGE, _stub_values, _change_size, STUB)


def transition_insert(writer: bytes) -> Upsert[ChangeRow]:
    """A line of history; one that is there stays as it is."""

    def values(row: ChangeRow) -> tuple[Any, ...]:
        return (
            *(writer, row.pos, row.version, row.stamp, row.at_ms, row.state, row.attempt),
            *(row.status, row.detail, row.reply, row.url, row.ms, row.due),
            *(row.process, row.host),
        )

    return Upsert(transitions, (), values, _change_size)


def _push_values(row: MessageRow) -> tuple[Any, ...]:
    return (
        *(row.version, row.topic, row.id, row.digest, row.seq, row.bucket, row.stamp, row.due),
        *(row.created, row.priority, row.timeout_ms, row.bkey, row.body, row.state, row.attempt),
        *(row.changed or row.stamp, row.stub),
    )


def _stub_values(row: ChangeRow) -> tuple[Any, ...]:
    stamp = int.from_bytes(row.version[:8], "big")
    return (
        *(row.version, row.topic, row.id, row.digest, stamp, row.due or 0),
        *(stamp // 1000, row.state, row.attempt, row.stamp),
    )


def _push_size(row: MessageRow) -> int:
    """At most so many bytes on the wire: MySQL's protocol may spend two on one of a body."""
    return _ROW_BYTES + 2 * len(row.body) + 4 * (len(row.topic) + len(row.id) + len(row.bkey))


def _change_size(row: ChangeRow) -> int:
    texts = (row.topic, row.id, row.detail, row.reply, row.url, row.process, row.host)
    return _ROW_BYTES + 4 * sum(map(len, texts))
