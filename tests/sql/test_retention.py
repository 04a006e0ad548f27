"""Finished jobs are forgotten when their topic's time for them is over, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from dq.core.topic import Topic
from dq.db.counts import Counts
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.repository import Repository
from dq.db.rows import State
from dq.db.topic_book import TopicBook
from dq.journal import retention
from dq.journal.retention import DAY_MS, Retention
from tests.sql.journal import SECOND, START, Writer, states

DAY = 86_400 * SECOND
START_MS = START // 1000
ENDS = (State.DONE, State.CANCELLED, State.DEAD, State.DELAYED)


@pytest.fixture
async def topics(tmp_path: Path, repository: Repository) -> TopicBook:
    book = TopicBook(tmp_path / "topics.json", repository)
    await book.put(Topic(topic="short", keep_done=1, keep_dead=2))
    await book.put(Topic(topic="long", keep_done=0, keep_dead=0))
    await book.put(Topic(topic="usual"))
    return book


@pytest.fixture
def sweeper(store: JournalStore, topics: TopicBook, database: Database) -> Retention:
    return Retention(store, topics, Counts(database))


async def _fill(store: JournalStore) -> None:
    writer = Writer(store, "a")
    for at, name in enumerate(("short", "long", "usual", "deleted")):
        for place, state in enumerate(ENDS):
            push = writer.push(f"{name}-{state.name}", at * SECOND + place, topic=name)
            if state is not State.DELAYED:
                writer.change(push, 10 * SECOND, state)
    await writer.ship()


async def _left(store: JournalStore, sweeper: Retention, days: float) -> list[str]:
    await sweeper.sweep(START_MS + round(days * DAY_MS))
    known = await states(store)
    return sorted(name for name, state in known.items() if state != "DELAYED")


async def test_each_topic_has_its_own_times(
    store: JournalStore, sweeper: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BITE_EACH_S", 0.0)
    await _fill(store)
    assert len(await _left(store, sweeper, 1)) == 12
    shorter = await _left(store, sweeper, 1.1)
    assert [name for name in shorter if name.startswith("short")] == ["short-DEAD"]
    assert len(shorter) == 10
    eternal = ["long-CANCELLED", "long-DEAD", "long-DONE"]
    assert await _left(store, sweeper, 8) == ["deleted-DEAD", *eternal, "usual-DEAD"]
    assert await _left(store, sweeper, 31) == eternal
    unfinished = [name for name, state in (await states(store)).items() if state == "DELAYED"]
    assert len(unfinished) == 4


async def test_versions_that_were_replaced_go_but_the_unfinished_one_stays(
    store: JournalStore, sweeper: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BITE_EACH_S", 0.0)
    monkeypatch.setattr(retention, "BITE", 3)
    writer = Writer(store, "a")
    for at in range(20):
        writer.push("1", at, topic="usual")
    await writer.ship()
    assert await sweeper.sweep(START_MS + 8 * DAY_MS) == 19
    record = await store.history("usual", "1")
    assert record is not None
    assert (record.message.stamp, record.message.state) == (START + 19, State.DELAYED)


async def test_what_finished_lately_stays_however_long_ago_it_was_pushed(
    store: JournalStore, sweeper: Retention
) -> None:
    writer = Writer(store, "a")
    push = writer.push("1", 0, topic="short")
    writer.change(push, 5 * DAY, State.DONE)
    await writer.ship()
    assert await _left(store, sweeper, 5.5) == ["1"]
    assert await _left(store, sweeper, 6.5) == []
