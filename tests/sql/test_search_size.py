"""A page of a search costs the same however many jobs there are: it goes along an index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.rows import State
from dq.queue.records import digest_of
from tests.sql.filled import FIRST_US, database, filled, plan_of

__all__ = ["database"]

COUNT = 200_000
MIDDLE_MS = FIRST_US // 1000 + COUNT // 2

SEARCHES: dict[str, dict[str, Any]] = {
    "newest": {},
    "of a topic": {"topic": "topic7"},
    "dead": {"state": State.DEAD},
    "waiting of a topic": {"topic": "topic0", "state": State.DELAYED},
    "by key": {"key": "key-4711"},
    "deep down": {"to_ms": MIDDLE_MS},
    "a topic in a stretch of time": {"topic": "topic3", "from_ms": MIDDLE_MS, "to_ms": 2**50},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("many"), COUNT)


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_page_of_200_000_jobs(database: Database, path: Path, name: str) -> None:
    store = JournalStore(database, digest_of)
    await store.search(limit=1)  # opens the connection
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *more: Any) -> None:
        if "FROM messages" in statement:
            seen.append((statement, parameters))

    assert database._engine is not None
    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", note)
    began = time.monotonic()
    page = await store.search(limit=50, **SEARCHES[name])
    took_s = time.monotonic() - began
    assert page.jobs
    assert took_s < 0.5
    for statement, parameters in seen:
        plan = plan_of(path, statement, parameters)
        assert not [step for step in plan if step.startswith("SCAN messages")], plan
        assert any("USING" in step and "INDEX ix_messages_" in step for step in plan), plan


async def test_a_finished_job_with_its_history(database: Database) -> None:
    store = JournalStore(database, digest_of)
    began = time.monotonic()
    record = await store.history("topic1", "job-199981")
    assert time.monotonic() - began < 0.2
    assert record is not None
    assert (record.message.state, len(record.transitions)) == (State.DONE, 1)
