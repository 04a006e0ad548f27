"""Fills the journal of an SQLite database with many jobs, straight into its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from dq.db.rows import State
from dq.db.tables import deaths, messages, transitions
from dq.queue.records import digest_of

CHUNK = 20_000
DEAD_EACH = 23
AGAIN_EACH = 10
AGAIN_AFTER = 2_000
WRITER = b"bench---"
_REPLIES = (
    (503, "HTTP 503", "<html><body>upstream connect error, reset before headers</body></html>"),
    (500, "HTTP 500", '{"code": 5001, "message": "order %d is locked by another worker"}'),
    (None, "timed out after 3 s", ""),
    (200, "the rule says: failed", '{"code": 17, "message": "no stock for order %d"}'),
)


def insert_into(table: sa.Table) -> str:
    """One row, its values in the order of the columns in dq/db/tables.py."""
    names = [column.name for column in table.columns]
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def fill_jobs(
    path: Path, count: int, *, first_us: int, topics: int = 20, waiting_each: int = 100
) -> None:
    """`count` versions from `first_us` on, a millisecond apart; one of `waiting_each` is
    unfinished, one of DEAD_EACH died, the others are done, with one line of history each. Of the
    dead, those whose number AGAIN_EACH divides were pushed again AGAIN_AFTER versions later. Topics
    with a name that ends in 3 have no deaths."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA synchronous=OFF")
    database.execute("PRAGMA cache_size=-200000")
    into_messages, into_transitions = insert_into(messages), insert_into(transitions)
    into_deaths, died = insert_into(deaths), 0
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        rows = list(_rows(numbers, first_us, topics, waiting_each))
        history = [_history(number, row) for number, row in zip(numbers, rows, strict=True)]
        dead = [line for line in history if line[5] == State.DEAD]
        database.execute("BEGIN")
        database.executemany(into_messages, rows)
        database.executemany(into_transitions, (line for line in history if line[5]))
        numbered = ((no, *line[:3]) for no, line in enumerate(dead, start=died + 1))
        database.executemany(into_deaths, numbered)
        database.execute("COMMIT")
        died += len(dead)
    database.execute("UPDATE counters SET value = ? WHERE name = 'deaths'", (died,))
    database.close()


def _rows(
    numbers: range, first_us: int, topics: int, waiting_each: int
) -> Iterator[tuple[object, ...]]:
    for number in numbers:
        stamp = first_us + number * 1000
        first = number - AGAIN_AFTER
        is_again = first % AGAIN_EACH == 0 and _state_of(first, topics, waiting_each) == State.DEAD
        job = first if is_again and first >= 0 else number
        topic, id_ = f"topic{job % topics}", f"job-{job}"
        state = _state_of(number, topics, waiting_each)
        yield (
            *(stamp.to_bytes(8, "big") + WRITER, topic, id_, digest_of(topic, id_)),
            *(number + 1, f"embedded/{number % 4}", stamp, stamp // 1000 + 1000, stamp // 1000),
            *(1, 0, f"key-{number % 100_000}", b'{"order": %d, "x": "0123456789"}' % number),
            *(int(state), 0 if state is State.DELAYED else 1, stamp + 500, False),
        )


def _state_of(number: int, topics: int, waiting_each: int) -> State:
    if number % waiting_each == 0:
        return State.DELAYED
    is_dead = number % DEAD_EACH == 0 and number % topics % 10 != 3
    return State.DEAD if is_dead else State.DONE


def _history(number: int, row: tuple[object, ...]) -> tuple[object, ...]:
    at_ms, state = row[8], row[13]
    status, detail, reply = 200, "", '{"code":200}'
    if state == State.DEAD:
        # An outage is the same words many times in a row.
        status, detail, reply = _REPLIES[number // 50_000 % len(_REPLIES)]
        reply = reply.replace("%d", str(number))
    return (
        *(WRITER, number, row[0], row[15], at_ms, state, 1, status, detail, reply),
        *("http://127.0.0.1/", 3, None, "dq-consumer-0", "host"),
    )
