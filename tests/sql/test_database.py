"""The database away, slow, locked, replaced: every call ends in time and says so."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from dq.core.errors import DatabaseAway
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.db.repository import Repository
from tests.mariadb import MariaDB, start_mariadb
from tests.sql.journal import Writer, digest_of

BOUND_S = 1.0
SLACK_S = 1.5


@pytest.fixture
async def hasty(url: str) -> AsyncIterator[Database]:
    """A database with little patience."""
    database = Database(url, timeout_s=BOUND_S)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def frozen(mariadb: MariaDB) -> Iterator[MariaDB]:
    """Freeze it as you like, it is thawed afterwards."""
    yield mariadb
    mariadb.thaw()


async def _is_away_in_time(database: Database) -> DatabaseAway:
    begin = time.monotonic()
    with pytest.raises(DatabaseAway) as away:
        await database.check()
    assert time.monotonic() - begin < BOUND_S + SLACK_S
    return away.value


async def test_an_unopened_or_dead_database_is_away(tmp_path: Path) -> None:
    dead = Database("mysql+aiomysql://root@127.0.0.1:1/dq", timeout_s=BOUND_S)
    await _is_away_in_time(dead)
    await dead.open()
    assert "127.0.0.1" in str(await _is_away_in_time(dead))
    await dead.close()
    missing = Database(f"sqlite+aiosqlite:///{tmp_path}/none.db", timeout_s=BOUND_S)
    await missing.open()
    assert "none.db" in str(await _is_away_in_time(missing))
    assert list(tmp_path.iterdir()) == []
    await missing.close()


async def test_a_block_that_fails_leaves_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError):
        async with database.begin() as conn:
            await conn.execute(sa.text("INSERT INTO settings (k, v) VALUES ('a', '1')"))
            raise RuntimeError
    assert await Repository(database).get_setting("a") is None


async def test_a_mistake_in_the_statement_is_not_hidden(database: Database) -> None:
    with pytest.raises(sa.exc.DBAPIError, match="nowhere"):
        async with database.read() as conn:
            await conn.execute(sa.text("SELECT 1 FORM nowhere"))


async def test_a_table_that_is_not_there_yet_is_waited_for(database: Database) -> None:
    with pytest.raises(DatabaseAway, match="dq-journal makes the schema"):
        async with database.read() as conn:
            await conn.execute(sa.text("SELECT 1 FROM nowhere"))


async def test_a_time_limit_of_the_caller_stays_the_callers(hasty: Database) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), hasty.read():
            await asyncio.sleep(10)
    await hasty.check()


async def test_a_long_statement_is_ended_in_time(hasty: Database) -> None:
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
        if hasty.is_sqlite
        else "SELECT SLEEP(30)"
    )
    begin = time.monotonic()
    with pytest.raises(DatabaseAway):
        async with hasty.read() as conn:
            await conn.execute(sa.text(endless))
    assert time.monotonic() - begin < BOUND_S + SLACK_S
    await hasty.check()


async def test_cancelled_calls_poison_no_connection(hasty: Database) -> None:
    async def read(number: int) -> int:
        async with hasty.read() as conn:
            return int((await conn.execute(sa.text(f"SELECT {number}"))).scalar_one())

    for number in range(40):
        task = asyncio.create_task(read(number))
        await asyncio.sleep(0.0005 * (number % 5))
        task.cancel()
    for number in range(20):
        assert await read(number) == number


async def _ask_for_ever(database: Database) -> None:
    while True:
        await database.check()


async def test_a_cancellation_is_never_swallowed(hasty: Database) -> None:
    for step in range(200):
        asking = asyncio.create_task(_ask_for_ever(hasty))
        await asyncio.sleep(0.0001 * (step % 50))
        asking.cancel()
        done, _ = await asyncio.wait([asking], timeout=BOUND_S + SLACK_S)
        assert done, f"it goes on, cancelled in step {step}"


@pytest.mark.time_limit(60)
async def test_a_frozen_server_is_away_and_comes_back(frozen: MariaDB) -> None:
    url = frozen.fresh_url()
    migrate(url)
    database = Database(url, timeout_s=BOUND_S)
    await database.open()
    store = JournalStore(database, digest_of)
    writer = Writer(store, "a")
    writer.push("1", 0)
    await writer.ship()
    writer.push("2", 1)
    with pytest.raises(DatabaseAway, match="within 1 s"):
        async with database.read() as conn:
            await conn.execute(sa.text("SELECT 1"))
            frozen.freeze()
    for _ in range(2):
        assert "within 1 s" in str(await _is_away_in_time(database))
    begin = time.monotonic()
    with pytest.raises(DatabaseAway):
        await writer.ship()
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(_is_away_in_time(database))
    assert time.monotonic() - begin < 3 * (BOUND_S + SLACK_S)
    frozen.thaw()
    assert await writer.ship() == []
    await database.close()


async def test_closing_does_not_wait_for_a_frozen_server(frozen: MariaDB) -> None:
    database = Database(frozen.fresh_url(), timeout_s=BOUND_S)
    await database.open()
    await database.check()
    frozen.freeze()
    begin = time.monotonic()
    await database.close()
    assert time.monotonic() - begin < BOUND_S + SLACK_S


@pytest.mark.time_limit(60)
async def test_a_server_that_was_killed_comes_back_by_itself() -> None:
    server = start_mariadb()
    database = Database(server.fresh_url(), timeout_s=5)
    await database.open()
    try:
        await database.check()
        server.kill()
        with pytest.raises(DatabaseAway):
            await database.check()
        server.start()
        await database.check()
    finally:
        await database.close()
        server.stop()


async def test_a_locked_file_is_away_for_writers_only(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/dq.db"
    migrate(url)
    database = Database(url, timeout_s=BOUND_S)
    await database.open()
    repository = Repository(database)
    other = sqlite3.connect(tmp_path / "dq.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begin = time.monotonic()
    with pytest.raises(DatabaseAway, match="locked"):
        await repository.put_setting("a", 1)
    assert time.monotonic() - begin < BOUND_S + SLACK_S
    assert await repository.get_setting("a") is None
    other.execute("ROLLBACK")
    other.close()
    await repository.put_setting("a", 1)
    await database.close()


async def test_a_file_that_was_deleted_or_replaced_is_noticed(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/dq.db"
    migrate(url)
    database = Database(url)
    await database.open()
    repository = Repository(database)
    await repository.put_setting("a", 1)
    for path in tmp_path.glob("dq.db*"):
        path.unlink()
    with pytest.raises(DatabaseAway, match=r"dq\.db"):
        await repository.put_setting("a", 2)
    migrate(url)
    assert await repository.get_setting("a") is None
    await repository.put_setting("a", 3)
    assert await repository.get_setting("a") == 3
    await database.close()


async def test_a_file_that_is_no_database_is_away(tmp_path: Path) -> None:
    (tmp_path / "dq.db").write_bytes(b"this was a database once" * 1000)
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/dq.db")
    await database.open()
    await _is_away_in_time(database)
    await database.close()
