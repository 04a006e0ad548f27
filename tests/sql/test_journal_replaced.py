"""Of a job only the newest push may be unfinished, in whatever order the logs arrive."""

from __future__ import annotations

from itertools import permutations

import pytest
import sqlalchemy as sa

from dq.db.journal_store import JournalStore
from dq.db.rows import State
from dq.db.tables import messages
from tests.sql.journal import Writer


@pytest.mark.parametrize("order", list(permutations("abc")))
async def test_only_the_newest_push_of_a_job_is_unfinished(
    store: JournalStore, order: tuple[str, ...]
) -> None:
    logs = {name: Writer(store, name) for name in order}
    for at, name in enumerate("abc"):
        logs[name].push("1", at, body=name.encode())
    for name in order:
        await logs[name].ship()
    assert [row.body for row in await store.unfinished(b"", 10)] == [b"c"]
    assert await _all_states(store) == [State.REPLACED, State.REPLACED, State.DELAYED]


async def test_pushes_of_one_job_in_one_batch_replace_each_other(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(5):
        writer.push("1", at, body=str(at).encode())
    writer.push("2", 9)
    await writer.ship()
    assert [row.body for row in await store.unfinished(b"", 10)] == [b"4", b"{}"]


async def test_a_finished_version_is_not_replaced(store: JournalStore) -> None:
    writer = Writer(store, "a")
    first = writer.push("1", 0)
    writer.change(first, 1, State.DONE, attempt=1)
    writer.push("1", 2)
    await writer.ship()
    assert await _all_states(store) == [State.DONE, State.DELAYED]


async def test_an_outcome_outranks_having_been_replaced(store: JournalStore) -> None:
    pushes, changes = Writer(store, "push"), Writer(store, "change")
    first = pushes.push("1", 0)
    pushes.push("1", 5)
    await pushes.ship()
    changes.change(first, 6, State.DONE, attempt=1)
    await changes.ship()
    assert await _all_states(store) == [State.DONE, State.DELAYED]


async def test_a_late_push_that_was_replaced_long_ago_stays_so(store: JournalStore) -> None:
    old, new = Writer(store, "old"), Writer(store, "new")
    first, second = old.push("1", 0), new.push("1", 5)
    new.change(second, 6, State.DONE, attempt=1)
    await new.ship()
    await old.ship()
    assert first.version < second.version
    assert await store.unfinished(b"", 10) == []
    assert await _all_states(store) == [State.REPLACED, State.DONE]


async def _all_states(store: JournalStore) -> list[int]:
    """Of every version, oldest first; not even replaced ones left out."""
    async with store._database.read() as conn:
        rows = await conn.execute(sa.select(messages.c.state).order_by(messages.c.version))
        return list(rows.scalars())
