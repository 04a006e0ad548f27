"""Looking at dead jobs costs what is looked at, however many have died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dq.db.database import Database
from dq.db.dead_letters import SCAN_ROWS, DeadLetters, WantedDead
from tests.bench.rows import DEAD_EACH
from tests.sql.filled import FIRST_US, database, filled, plan_of

__all__ = ["database"]

COUNT = 60_000
MIDDLE_MS = FIRST_US // 1000 + COUNT // 2

Look = Callable[[DeadLetters], Awaitable[object]]

SCANS: dict[str, Look] = {
    "page": lambda letters: letters.page(WantedDead(), 50),
    "second page": lambda letters: letters.page(WantedDead(), 50, 700),
    "in a reply": lambda letters: letters.page(WantedDead(q="no stock"), 50),
    "found nowhere": lambda letters: letters.page(WantedDead(q="nobody"), 50),
    "stretch of time": lambda letters: letters.page(WantedDead(to_ms=MIDDLE_MS), 50),
    "count": lambda letters: letters.count(WantedDead(), 10_000),
    "badge": lambda letters: letters.count_since(MIDDLE_MS, 100),
}
BY_TOPIC: dict[str, Look] = {
    "page": lambda letters: letters.page(WantedDead(topic="topic7"), 50),
    "page with a text": lambda letters: letters.page(WantedDead(topic="topic7", q="nobody"), 50),
    "none dead": lambda letters: letters.page(WantedDead(topic="topic3"), 50),
    "count": lambda letters: letters.count(WantedDead(topic="topic7"), 10_000),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("dead"), COUNT)


async def plans_of(database: Database, path: Path, look: Look) -> list[list[str]]:
    """The plan of each statement that `look` reads rows with."""
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *more: Any) -> None:
        if "FROM deaths" in statement or "FROM messages" in statement:
            seen.append((statement, parameters))

    letters = DeadLetters(database)
    await letters.newest()  # opens the connection
    assert database._engine is not None
    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", note)
    await look(letters)
    return [plan_of(path, *one) for one in seen]


@pytest.mark.parametrize("name", SCANS)
async def test_deaths_are_read_downwards(database: Database, path: Path, name: str) -> None:
    plans = await plans_of(database, path, SCANS[name])
    assert len(plans) <= 2 * (COUNT // DEAD_EACH // SCAN_ROWS + 1)
    for plan in plans:
        first = next(step for step in plan if step.startswith("SEARCH"))
        assert first.startswith("SEARCH deaths") and "no<?" in first, plan
        assert not [step for step in plan if "TEMP B-TREE" in step or "AUTOMATIC" in step], plan
        assert not [step for step in plan if "ix_messages_state" in step], plan


@pytest.mark.parametrize("name", BY_TOPIC)
async def test_few_of_a_topic_are_read_by_their_topic(
    database: Database, path: Path, name: str
) -> None:
    plans = await plans_of(database, path, BY_TOPIC[name])
    assert len(plans) == 2
    for plan in plans:
        first = next(step for step in plan if step.startswith("SEARCH"))
        assert "ix_messages_topic (topic=? AND state=?)" in first, plan
        assert not [step for step in plan if step.startswith("SCAN ") and "anon" not in step], plan
