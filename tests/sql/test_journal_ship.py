"""Shipping: what a batch does to the rows that are there, whatever came before it."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest
import sqlalchemy as sa

from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.rows import CursorMoved, State
from dq.db.tables import transitions
from tests.mariadb import MariaDB
from tests.sql.journal import SECOND, START, Writer, states

SIX_IDS = ["x", "X", "x ", "é", "e", "e\u0301"]


async def test_a_shipped_push_comes_back_as_it_was(store: JournalStore) -> None:
    writer = Writer(store, "a")
    body = bytes(range(256)) * 4096
    pushed = writer.push("42", 0, body=body, bkey="order-7", priority=0, timeout_ms=1500)
    assert await writer.ship() == []
    record = await store.history("t", "42")
    assert record is not None
    message = record.message
    assert message.body == body
    assert (message.version, message.seq, message.bucket) == (pushed.version, 1, "redis-0/0")
    assert (message.bkey, message.priority, message.timeout_ms) == ("order-7", 0, 1500)
    assert (message.state, message.attempt, message.stub) == (State.DELAYED, 0, False)
    assert message.changed == pushed.stamp


async def test_ids_topics_and_keys_compare_byte_for_byte(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at, name in enumerate(SIX_IDS):
        writer.push(name, at, body=name.encode())
        writer.push("id", 100 + at, topic=name, bkey=name, body=name.encode())
    assert await writer.ship() == []
    for name in SIX_IDS:
        of_id = await store.history("t", name)
        of_topic = await store.history(name, "id")
        assert of_id is not None and of_id.message.body == name.encode()
        assert of_topic is not None and of_topic.message.body == name.encode()
        assert [job.topic for job in (await store.search(key=name)).jobs] == [name]
        assert [job.topic for job in (await store.search(topic=name)).jobs] == [name]
    assert len(await store.unfinished(b"", 100)) == 12


async def test_ids_with_one_digest_stay_two_jobs(store: JournalStore) -> None:
    writer = Writer(store, "a")
    writer.push("one", 0, digest=b"8 bytes!")
    writer.push("two", 1, digest=b"8 bytes!")
    writer.push("one", 2, digest=b"8 bytes!")
    assert await writer.ship() == []
    assert [row.id for row in await store.unfinished(b"", 10)] == ["two", "one"]
    assert await states(store) == {"one": "DELAYED", "two": "DELAYED"}


async def test_a_log_is_shipped_from_where_it_stopped(store: JournalStore) -> None:
    writer = Writer(store, "a")
    assert await store.cursor(writer.name) == 0
    writer.push("1", 0)
    again = writer.batch()
    await writer.ship()
    assert await store.cursor(writer.name) == again.pos_after
    with pytest.raises(CursorMoved) as moved:
        await store.ship(again)
    assert moved.value.actual == again.pos_after
    await store.close_cursor(writer.name)
    assert await store.open_cursors() == {}
    assert await store.cursor(writer.name) == again.pos_after


async def test_a_batch_that_is_refused_leaves_nothing(store: JournalStore) -> None:
    writer = Writer(store, "a")
    writer.push("1", 0)
    await writer.ship()
    other = Writer(store, "a")
    other.push("2", 1)
    with pytest.raises(CursorMoved):
        await other.ship()
    assert await states(store) == {"1": "DELAYED"}


@pytest.mark.parametrize("order", list(permutations(["push", "retry", "done"])))
async def test_state_does_not_depend_on_the_order_of_logs(
    store: JournalStore, order: tuple[str, ...]
) -> None:
    logs = {name: Writer(store, name) for name in order}
    push = logs["push"].push("1", 0, body=b"the body")
    logs["retry"].change(push, SECOND, State.DELAYED, attempt=1, status=500, due=99)
    logs["done"].change(push, 2 * SECOND, State.DONE, attempt=2, status=200)
    for name in order:
        assert await logs[name].ship() == []
    record = await store.history("t", "1")
    assert record is not None
    assert record.message.body == b"the body"
    assert (record.message.state, record.message.attempt) == (State.DONE, 2)
    assert not record.message.stub
    assert [line.status for line in record.transitions] == [500, 200]
    assert await store.unfinished(b"", 10) == []


@pytest.mark.parametrize("order", list(permutations(["push", "early", "late"])))
async def test_the_later_of_two_due_times_stays(
    store: JournalStore, order: tuple[str, ...]
) -> None:
    logs = {name: Writer(store, name) for name in order}
    push = logs["push"].push("1", 0)
    logs["early"].change(push, 1, State.DELAYED, attempt=1, due=111)
    logs["late"].change(push, 2, State.DELAYED, attempt=2, due=222)
    for name in order:
        await logs[name].ship()
    [row] = await store.unfinished(b"", 10)
    assert (row.due, row.attempt, row.changed) == (222, 2, START + 2)


@pytest.mark.parametrize("order", list(permutations(["push", "dead", "cancelled"])))
async def test_a_cancelled_job_is_not_dead(store: JournalStore, order: tuple[str, ...]) -> None:
    logs = {name: Writer(store, name) for name in order}
    push = logs["push"].push("1", 0)
    logs["dead"].change(push, 2, State.DEAD, attempt=1)
    logs["cancelled"].change(push, 1, State.CANCELLED)
    for name in order:
        await logs[name].ship()
    assert await states(store) == {"1": "CANCELLED"}


async def test_a_change_before_its_push_is_a_stub_without_a_body(store: JournalStore) -> None:
    pushes, changes = Writer(store, "push"), Writer(store, "change")
    push = pushes.push("1", 0, body=b"body")
    changes.change(push, 1, State.DELAYED, attempt=1, due=111)
    await changes.ship()
    record = await store.history("t", "1")
    assert record is not None and record.message.stub and record.message.body == b""
    assert await store.unfinished(b"", 10) == []
    await pushes.ship()
    [row] = await store.unfinished(b"", 10)
    assert (row.body, row.due, row.attempt) == (b"body", 111, 1)


async def test_a_final_stub_takes_its_due_time_from_the_push(store: JournalStore) -> None:
    pushes, changes = Writer(store, "push"), Writer(store, "change")
    push = pushes.push("1", 0, due=777)
    changes.change(push, 1, State.DONE, attempt=1)
    await changes.ship()
    await pushes.ship()
    record = await store.history("t", "1")
    assert record is not None and record.message.due == 777


async def test_a_row_that_sql_refuses_is_set_aside(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(40):
        writer.push(str(at), at)
    writer.push("too late", 100, due=2**70)
    good = writer.push("good", 101)
    writer.change(good, 102, State.DONE, attempt=1)
    bad = writer.change(good, 103, State.DONE, attempt=1, reply="\ud800")
    rejected = await writer.ship()
    assert [getattr(reject.row, "id", "") for reject in rejected] == ["too late", "good"]
    assert rejected[1].row == bad
    assert all(reject.reason for reject in rejected)
    assert len(await states(store)) == 41
    assert (await states(store))["good"] == "DONE"
    assert await store.cursor(writer.name) == writer.pos


async def test_bad_rows_among_many_leave_the_others(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(1200):
        writer.push(str(at), at, due=2**70 if at % 300 == 7 else 5)
    rejected = await writer.ship()
    assert sorted(reject.row.id for reject in rejected) == ["307", "607", "7", "907"]
    assert len(await store.unfinished(b"", 2000)) == 1196


async def test_large_bodies_are_cut_into_statements_that_fit(store: JournalStore) -> None:
    writer = Writer(store, "a")
    hostile = b"\\'\x00\xff" * (256 * 1024)
    for at in range(12):
        writer.push(str(at), at, body=hostile)
    assert await writer.ship() == []
    rows = await store.unfinished(b"", 100)
    assert rows[0].body == hostile
    assert len(rows) < 20


async def test_two_ship_one_log_and_one_of_them_wins(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at in range(100):
        push = writer.push(str(at), at)
        writer.change(push, at + 1, State.DEAD, attempt=1)
    batch = writer.batch()
    results = await asyncio.gather(*(store.ship(batch) for _ in range(4)), return_exceptions=True)
    assert sum(result == [] for result in results) == 1
    assert sum(isinstance(result, CursorMoved) for result in results) == 3
    assert len(await store.deaths(0, 1000)) == 100


async def test_many_ship_changes_of_the_same_jobs_at_once(store: JournalStore) -> None:
    pushes = Writer(store, "pushes")
    jobs = [pushes.push(str(at), at) for at in range(300)]
    consumers = [Writer(store, f"c{number}") for number in range(6)]
    for number, consumer in enumerate(consumers):
        for job in jobs if number % 2 else reversed(jobs):
            consumer.change(job, SECOND + number, State.DELAYED, attempt=number, due=number + 1)
            consumer.change(job, 2 * SECOND, State.DEAD if number else State.DONE, attempt=9)
    shipped = await asyncio.gather(*(writer.ship() for writer in [pushes, *consumers]))
    assert shipped == [[]] * 7
    assert set((await states(store)).values()) == {"DONE"}
    deaths = await store.deaths(0, 10_000)
    assert len({death.no for death in deaths}) == len(deaths) == 1500


async def test_a_batch_is_few_statements(store: JournalStore, mariadb: MariaDB) -> None:
    def inserts() -> int:
        return int(mariadb.run("SHOW GLOBAL STATUS LIKE 'Com_insert'")[0][1])

    writer = Writer(store, "a")
    for at in range(1000):
        writer.change(writer.push(str(at), at), SECOND, State.DONE)
    before = inserts()
    await writer.ship()
    assert inserts() - before <= 8


async def test_each_record_is_one_line_of_history(store: JournalStore, database: Database) -> None:
    writer = Writer(store, "a")
    push = writer.push("1", 0)
    writer.change(
        push,
        SECOND,
        State.DELAYED,
        attempt=1,
        status=503,
        detail="HTTP 503",
        reply="später ✓",
        url="http://h/p",
        ms=12,
        due=5,
        process="dq-consumer-0",
        host="h1",
    )
    await writer.ship()
    record = await store.history("t", "1")
    assert record is not None
    [line] = record.transitions
    assert (line.at_ms, line.state, line.attempt, line.status) == (START // 1000 + 1000, 0, 1, 503)
    assert (line.detail, line.reply, line.url) == ("HTTP 503", "später ✓", "http://h/p")
    assert (line.ms, line.due, line.process, line.host) == (12, 5, "dq-consumer-0", "h1")
    async with database.read() as conn:
        assert await conn.scalar(sa.select(sa.func.count()).select_from(transitions)) == 1
