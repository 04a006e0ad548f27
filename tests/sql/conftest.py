"""Every test of the SQL side runs on SQLite and on a real MariaDB."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.db.repository import Repository
from tests.mariadb import MariaDB, mariadb
from tests.sql.journal import digest_of

__all__ = ["mariadb"]


@pytest.fixture(params=["sqlite", "mariadb"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/dq.db"
    server: MariaDB = request.getfixturevalue("mariadb")
    return server.fresh_url()


@pytest.fixture
def url(empty_url: str) -> str:
    migrate(empty_url)
    return empty_url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def repository(database: Database) -> Repository:
    return Repository(database)


@pytest.fixture
def store(database: Database) -> JournalStore:
    return JournalStore(database, digest_of)
