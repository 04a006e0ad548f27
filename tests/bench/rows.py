"""Fills the journal of an SQLite database with many jobs, straight into its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from dq.db.rows import State
from dq.db.tables import messages, transitions
from dq.queue.records import digest_of

CHUNK = 20_000


def insert_into(table: sa.Table) -> str:
    """One row, its values in the order of the columns in dq/db/tables.py."""
    names = [column.name for column in table.columns]
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def fill_jobs(
    path: Path, count: int, *, first_us: int, topics: int = 20, waiting_each: int = 100
) -> None:
    """`count` versions from `first_us` on, a millisecond apart; one of `waiting_each` is
    unfinished, one of 97 dead, the others are done with one line of history each."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA synchronous=OFF")
    database.execute("PRAGMA cache_size=-200000")
    into_messages, into_transitions = insert_into(messages), insert_into(transitions)
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        rows = list(_rows(numbers, first_us, topics, waiting_each))
        database.execute("BEGIN")
        database.executemany(into_messages, rows)
        lines = (_history(number, row) for number, row in zip(numbers, rows, strict=True))
        database.executemany(into_transitions, (line for line in lines if line[5]))
        database.execute("COMMIT")
    database.close()


def _rows(
    numbers: range, first_us: int, topics: int, waiting_each: int
) -> Iterator[tuple[object, ...]]:
    for number in numbers:
        stamp = first_us + number * 1000
        topic, id_ = f"topic{number % topics}", f"job-{number}"
        state = State.DEAD if number % 97 == 0 else State.DONE
        state = State.DELAYED if number % waiting_each == 0 else state
        yield (
            *(stamp.to_bytes(8, "big") + b"bench---", topic, id_, digest_of(topic, id_)),
            *(number + 1, f"embedded/{number % 4}", stamp, stamp // 1000 + 1000, stamp // 1000),
            *(1, 0, f"key-{number % 100_000}", b'{"order": %d, "x": "0123456789"}' % number),
            *(int(state), 0 if state is State.DELAYED else 1, stamp + 500, False),
        )


def _history(number: int, row: tuple[object, ...]) -> tuple[object, ...]:
    at_ms = row[8]
    return (
        *(b"bench---", number, row[0], row[15], at_ms, row[13], 1, 200, "", '{"code":200}'),
        *("http://127.0.0.1/", 3, None, "dq-consumer-0", "host"),
    )
