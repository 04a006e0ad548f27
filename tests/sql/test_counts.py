"""Counts of a topic: each event once, in its minute and day, whoever ships and however often."""

from __future__ import annotations

import asyncio

import pytest

from dq.db.counts import DAY_MS, MINUTE_MS, Counts, MinuteCounts, Tally
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.rows import CursorMoved, State
from tests.sql.journal import SECOND, START, Writer

START_MS = START // 1000
FIRST_MS = START_MS - START_MS % MINUTE_MS
MINUTE = 60 * SECOND


@pytest.fixture
def counts(database: Database) -> Counts:
    return Counts(database)


async def _minute(counts: Counts, at: int = 0, topic: str | None = None) -> MinuteCounts:
    """The minute `at` minutes after the first one."""
    begin = FIRST_MS + at * MINUTE_MS
    (found,) = await counts.per_minute(begin, begin + 1, topic)
    return found


async def test_every_kind_of_event_is_counted(store: JournalStore, counts: Counts) -> None:
    writer = Writer(store, "a")
    ok, dead, gone, moved = (writer.push(name, at) for at, name in enumerate("abcd"))
    writer.change(ok, 100, State.DELAYED, attempt=1, due=START_MS + 5000, late_ms=7)
    writer.change(ok, 200, State.DONE, attempt=2)
    writer.change(dead, 300, State.DEAD, attempt=1, late_ms=30)
    writer.change(gone, 400, State.CANCELLED)
    writer.change(moved, 500, State.DELAYED, due=START_MS + 9000)
    await writer.ship()
    expected = MinuteCounts(
        *(4, 1, 2, 1, 1), at_ms=FIRST_MS, started=2, late_ms_max=30, late_ms_sum=37
    )
    assert await _minute(counts) == await _minute(counts, topic="t") == expected
    assert expected.late_ms_mean == 18.5
    (of_topic,) = (await counts.of_topics(["t"], FIRST_MS - FIRST_MS % DAY_MS)).values()
    assert of_topic.total == of_topic.today == Tally(4, 1, 2, 1, 1)


async def test_batches_add_up_by_topic_minute_and_day(store: JournalStore, counts: Counts) -> None:
    writer = Writer(store, "a")
    for number in range(6):
        writer.push(str(number), number * MINUTE, topic="AaB"[number % 3])
        await writer.ship()
    assert [one.pushed for one in await counts.per_minute(FIRST_MS, FIRST_MS + 8 * MINUTE_MS)] == [
        *([1] * 6),
        *([0] * 2),
    ]
    mine = await counts.per_minute(FIRST_MS, FIRST_MS + 5 * MINUTE_MS, "a")
    assert [one.pushed for one in mine] == [0, 1, 0, 0, 1]
    found = await counts.of_topics(["A", "a", "b"], START_MS + DAY_MS)
    assert [found[name].total.pushed for name in "Aab"] == [2, 2, 0]
    assert [found[name].today.pushed for name in "Aab"] == [0, 0, 0]


async def test_today_begins_on_any_quarter_of_an_hour(store: JournalStore, counts: Counts) -> None:
    writer = Writer(store, "a")
    quarter_ms = START_MS - START_MS % 900_000
    for number in range(-2, 3):
        writer.push(str(number), (quarter_ms - START_MS + number * 900_000) * 1000)
    await writer.ship()
    for passed in range(3):
        found = await counts.of_topics(["t"], quarter_ms + passed * 900_000)
        assert (found["t"].total.pushed, found["t"].today.pushed) == (5, 3 - passed)


async def test_a_batch_that_is_shipped_twice_counts_once(
    store: JournalStore, counts: Counts
) -> None:
    writer = Writer(store, "a")
    writer.push("1", 0)
    batch = writer.batch()
    await writer.ship()
    with pytest.raises(CursorMoved):
        await store.ship(batch)
    assert (await _minute(counts)).pushed == 1


async def test_many_who_ship_at_once_lose_no_count(store: JournalStore, counts: Counts) -> None:
    writers = [Writer(store, f"w{number}") for number in range(4)]
    for turn in range(5):
        for writer in writers:
            for number in range(20):
                name = f"{writer.name!r}{turn}/{number}"
                writer.push(name, number * SECOND, topic=f"t{(number * 7) % 10}")
        await asyncio.gather(*(writer.ship() for writer in writers))
    assert (await _minute(counts)).pushed == 4 * 5 * 20
    found = await counts.of_topics([f"t{number}" for number in range(10)], FIRST_MS)
    assert [one.total.pushed for one in found.values()] == [40] * 10


async def test_many_topics_in_one_batch(store: JournalStore, counts: Counts) -> None:
    names = [f"topic-{number}" for number in range(700)]
    writer = Writer(store, "a")
    for at, name in enumerate(names):
        writer.push("1", at, topic=name)
    await writer.ship()
    found = await counts.of_topics(names, FIRST_MS - FIRST_MS % DAY_MS)
    assert {one.today.pushed for one in found.values()} == {1}
    assert (await _minute(counts)).pushed == 700


async def test_minutes_are_forgotten_after_two_days_and_totals_never(
    store: JournalStore, counts: Counts
) -> None:
    writer = Writer(store, "a")
    writer.push("1", 0)
    writer.push("2", MINUTE)
    await writer.ship()
    await counts.purge(FIRST_MS + 2 * DAY_MS)
    assert ((await _minute(counts)).pushed, (await _minute(counts, 1)).pushed) == (1, 1)
    await counts.purge(FIRST_MS + 2 * DAY_MS + 1)
    assert ((await _minute(counts)).pushed, (await _minute(counts, 1)).pushed) == (0, 1)
    await counts.purge(FIRST_MS + 20 * DAY_MS)
    (found,) = (await counts.of_topics(["t"], 0)).values()
    assert (found.total.pushed, found.today.pushed) == (2, 0)


async def test_nothing_was_ever_shipped(counts: Counts) -> None:
    assert await counts.of_topics([], 0) == {}
    assert (await counts.of_topics(["t"], 0))["t"].total == Tally()
    assert len(await counts.per_minute(FIRST_MS + 1, FIRST_MS + 3_600_001)) == 60
