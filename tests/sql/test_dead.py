"""Dead jobs are found, counted and paged alike, whichever way into the tables is taken."""

from __future__ import annotations

from typing import Any

import pytest

from dq.db import dead_letters
from dq.db.database import Database
from dq.db.dead_letters import DeadLetters, WantedDead
from dq.db.journal_store import JournalStore
from dq.db.rows import State
from tests.sql.journal import SECOND, START, Writer

DEAD = 24
AGAIN = ("j3", "j16")


@pytest.fixture
async def letters(database: Database, store: JournalStore) -> DeadLetters:
    """j0 to j23 died a second apart in turns in the topics a, b and c; AGAIN was pushed again."""
    writer = Writer(store, "w")
    for number in range(DEAD):
        topic, at = "abc"[number % 3], number * SECOND
        push = writer.push(f"j{number}", at, topic=topic, bkey=f"k{number % 2}")
        writer.change(push, at + 10, State.DELAYED, attempt=1, status=500)
        reply = "no stock" if number % 4 == 0 else "locked"
        writer.change(push, at + 20, State.DEAD, attempt=2, status=500, reply=reply)
        writer.change(writer.push(f"fine{number}", at + 30, topic=topic), at + 40, State.DONE)
        if push.id in AGAIN:
            writer.push(push.id, at + 50, topic=topic)
    assert await writer.ship() == []
    return DeadLetters(database)


def expected(**wanted: Any) -> list[str]:
    """The latest death first."""
    ids = []
    for number in reversed(range(DEAD)):
        at_ms = (START + number * SECOND + 20) // 1000
        words = (f"j{number}", f"k{number % 2}", "no stock" if number % 4 == 0 else "locked")
        if (
            f"j{number}" not in AGAIN
            and wanted.get("topic", "abc"[number % 3]) == "abc"[number % 3]
            and any(wanted.get("q", "") in word for word in words)
            and wanted.get("from_ms", 0) <= at_ms < wanted.get("to_ms", 2**62)
        ):
            ids.append(f"j{number}")
    return ids


def set_sizes(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Stretches of a few deaths, and what counts as few jobs of a topic."""
    monkeypatch.setattr(dead_letters, "SCAN_ROWS", 5)
    monkeypatch.setattr(dead_letters, "SCAN_ROWS_BY_TIME", 7)
    monkeypatch.setattr(dead_letters, "FEW_ROWS", few)


WANTED: tuple[dict[str, Any], ...] = (
    {},
    {"topic": "a"},
    {"topic": "b", "q": "no stock"},
    {"topic": "never"},
    {"q": "locked"},
    {"q": "j1"},
    {"q": "nobody said this"},
    {"from_ms": (START + 5 * SECOND) // 1000, "to_ms": (START + 15 * SECOND) // 1000},
    {"topic": "c", "from_ms": (START + 12 * SECOND) // 1000},
)


@pytest.mark.parametrize("few", [0, 100])
async def test_all_pages_together_have_each_once(
    letters: DeadLetters, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    set_sizes(monkeypatch, few)
    for wanted in WANTED:
        for limit in (1, 4, 100):
            ids, below = [], None
            while True:
                page = await letters.page(WantedDead(**wanted), limit, below)
                ids += [line.id for line in page.jobs]
                assert len(page.jobs) <= limit
                below = page.below
                if below is None:
                    break
            assert ids == expected(**wanted), (wanted, limit)
        counted = await letters.count(WantedDead(**wanted), 100, budget_ms=60_000)
        assert (counted.count, counted.is_all) == (len(ids), True), wanted


@pytest.mark.parametrize("few", [0, 100])
async def test_without_time_each_call_gets_further(
    letters: DeadLetters, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    set_sizes(monkeypatch, few)
    for wanted in WANTED:
        ids: list[str] = []
        page = await letters.page(WantedDead(**wanted), 100, budget_ms=0)
        ids += [line.id for line in page.jobs]
        while (before := page.below) is not None:
            page = await letters.page(WantedDead(**wanted), 100, before, budget_ms=0)
            assert page.below is None or page.below < before
            ids += [line.id for line in page.jobs]
        assert ids == expected(**wanted), wanted


async def test_a_count_says_whether_it_is_all(
    letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = WantedDead()
    counted = await letters.count(everything, 10)
    assert (counted.count, counted.is_all) == (10, False)
    counted = await letters.count(everything, DEAD - len(AGAIN))
    assert (counted.count, counted.is_all) == (DEAD - len(AGAIN), True)
    monkeypatch.setattr(dead_letters, "SCAN_ROWS", 5)
    counted = await letters.count(everything, 100, budget_ms=0)
    assert (counted.count, counted.is_all) == (5, False)
    counted = await letters.count(WantedDead(q="nobody"), 100, budget_ms=0)
    assert (counted.count, counted.is_all) == (0, False)


async def test_the_latest_deaths_are_counted_for_the_badge(letters: DeadLetters) -> None:
    since_ms = (START + 10 * SECOND) // 1000
    assert await letters.count_since(since_ms, 100) == len(expected(from_ms=since_ms)) == 13
    assert await letters.count_since(since_ms, 4) == 4
    assert await letters.count_since(since_ms + 3_600_000, 100) == 0


async def test_chosen_ones_are_those_that_still_are_dead(letters: DeadLetters) -> None:
    page = await letters.page(WantedDead(), 100)
    some = [line for line in page.jobs if line.id in ("j1", "j8", "j20")]
    again = [
        (START + int(id_[1:]) * SECOND).to_bytes(8, "big") + some[0].version[8:] for id_ in AGAIN
    ]
    assert await letters.chosen([*again, *(line.version for line in some)]) == some
    assert await letters.chosen([]) == []
