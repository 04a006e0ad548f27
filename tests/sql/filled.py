"""A journal of many jobs in SQLite, and how it goes about a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dq.db.database import Database
from dq.db.migrate import migrate
from tests.bench.rows import fill_jobs

FIRST_US = 1_790_000_000_000_000


def filled(folder: Path, count: int) -> Path:
    """The file of a journal with `count` jobs."""
    path = folder / "dq.db"
    migrate(f"sqlite+aiosqlite:///{path}")
    fill_jobs(path, count, first_us=FIRST_US)
    return path


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    """The journal that a module's own fixture `path` has filled."""
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    yield database
    await database.close()


def plan_of(path: Path, statement: str, parameters: Any) -> list[str]:
    """The steps of SQLite's plan."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return [str(row[3]) for row in rows]
