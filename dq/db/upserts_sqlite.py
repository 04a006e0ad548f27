"""What goes into the journal's tables on SQLite, row after row in prepared statements.

The driver binds exact int, str and bytearray at once, in 50 to 100 ns; for anything else, bytes,
None, bool and enums too, it looks for an adapter first, in 300. So that is all it is given here. A
change nearly always finds its version there and is an UPDATE then; the merge is that of upserts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from dq.db.rows import ChangeRow, MessageRow, Rejected
from dq.db.tables import messages, transitions
from dq.db.upserts import MERGE_CHANGE, MERGE_PUSH, STUB, halve

_NONE = -1
"""Stands for None in numbers that are never below 0."""


def _insert(table: sa.Table, values: dict[str, str], then: str) -> str:
    names = [column.name for column in table.columns]
    row = ", ".join(values.get(name, "?") for name in names)
    key = ", ".join(column.name for column in table.primary_key)
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({row}) ON CONFLICT ({key}) {then}"
    )


def _merge(parts: Sequence[str], mark: str) -> str:
    names = {column.name: mark.format(column.name) for column in messages.columns}
    return ", ".join(part.format(**names) for part in parts)


_PUSH = _insert(messages, {}, f"DO UPDATE SET {_merge(MERGE_PUSH, 'excluded.{}')}")
_STUB = _insert(messages, STUB, f"DO UPDATE SET {_merge(MERGE_CHANGE, 'excluded.{}')}")
_NUMBERS = {"version": "?1", "state": "?2", "attempt": "?3", "due": "?4", "changed": "?5"}
_CHANGE = (
    f"UPDATE messages SET {', '.join(part.format(**_NUMBERS) for part in MERGE_CHANGE)}"
    " WHERE version = ?1"
)
_OR_NULL = f"NULLIF(?, {_NONE})"
_LINE = _insert(transitions, {"status": _OR_NULL, "due": _OR_NULL}, "DO NOTHING")


def insert_pushes(conn: sa.Connection, rows: Sequence[MessageRow]) -> list[Rejected]:
    """Pushes: each fills a stub, keeps the further state; the same again changes nothing."""
    return halve(_insert_pushes, conn, rows) if rows else []


def merge_changes(conn: sa.Connection, rows: Sequence[ChangeRow]) -> list[Rejected]:
    """Changes, each to its version; a stub where its push has not been shipped yet."""
    return halve(_merge_changes, conn, rows) if rows else []


def insert_lines(conn: sa.Connection, writer: bytes, rows: Sequence[ChangeRow]) -> list[Rejected]:
    """Lines of history; one that is there stays as it is."""

    def insert(conn: sa.Connection, rows: Sequence[ChangeRow]) -> None:
        conn.exec_driver_sql(_LINE, _line_values(bytearray(writer), rows))

    return halve(insert, conn, rows) if rows else []


def _insert_pushes(conn: sa.Connection, rows: Sequence[MessageRow]) -> None:
    conn.exec_driver_sql(_PUSH, _push_values(rows))


def _merge_changes(conn: sa.Connection, rows: Sequence[ChangeRow]) -> None:
    found = conn.exec_driver_sql(_CHANGE, _change_values(rows)).rowcount
    if found < len(rows):
        conn.exec_driver_sql(_STUB, _stub_values(rows))


# Written out for speed; `+` makes an exact int of a bool and of an enum.


def _push_values(rows: Sequence[MessageRow]) -> list[tuple[Any, ...]]:
    raw = bytearray
    return [
        (
            *(raw(row.version), row.topic, row.id, raw(row.digest), row.seq, row.bucket),
            *(row.stamp, row.due, row.created, row.priority, row.timeout_ms, row.bkey),
            *(raw(row.body), +row.state, row.attempt, row.changed or row.stamp, +row.stub),
        )
        for row in rows
    ]


def _change_values(rows: Sequence[ChangeRow]) -> list[tuple[Any, ...]]:
    raw = bytearray
    return [(raw(row.version), +row.state, row.attempt, row.due or 0, row.stamp) for row in rows]


def _stub_values(rows: Sequence[ChangeRow]) -> list[tuple[Any, ...]]:
    raw = bytearray
    stamps = [int.from_bytes(row.version[:8], "big") for row in rows]
    return [
        (
            *(raw(row.version), row.topic, row.id, raw(row.digest), stamp, row.due or 0),
            *(stamp // 1000, +row.state, row.attempt, row.stamp),
        )
        for stamp, row in zip(stamps, rows, strict=True)
    ]


def _line_values(writer: bytearray, rows: Sequence[ChangeRow]) -> list[tuple[Any, ...]]:
    raw = bytearray
    return [
        (
            *(writer, row.pos, raw(row.version), row.stamp, row.at_ms, +row.state, row.attempt),
            *(_NONE if row.status is None else row.status, row.detail, row.reply, row.url),
            *(row.ms, _NONE if row.due is None else row.due, row.process, row.host),
        )
        for row in rows
    ]
