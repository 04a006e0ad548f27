"""Migrations: by many at once, half done, twice, and what they make."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from dq.core.errors import DatabaseAway
from dq.db.migrate import MigrationFailed, migrate
from dq.db.tables import metadata


def _blocking(url: str) -> sa.Engine:
    plain = url.replace("+aiosqlite", "").replace("+aiomysql", "+pymysql")
    return sa.create_engine(plain, poolclass=sa.NullPool)


def test_the_migrations_make_what_the_code_believes(url: str) -> None:
    with _blocking(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_migrating_again_changes_nothing(url: str) -> None:
    with _blocking(url).begin() as connection:
        connection.execute(sa.text("UPDATE counters SET value = 7"))
    migrate(url)
    with _blocking(url).connect() as connection:
        assert connection.execute(sa.text("SELECT value FROM counters")).scalars().all() == [7, 7]


@pytest.mark.time_limit(60)
def test_many_processes_migrate_at_once(empty_url: str) -> None:
    fork = multiprocessing.get_context("spawn")
    processes = [fork.Process(target=migrate, args=(empty_url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    with _blocking(empty_url).connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM alembic_version")) == 1
        assert connection.scalar(sa.text("SELECT count(*) FROM counters")) == 2


def test_a_migration_that_was_killed_half_way_is_finished(url: str) -> None:
    with _blocking(url).begin() as connection:
        for name in ("transitions", "deaths", "alembic_version"):
            connection.execute(sa.text(f"DROP TABLE {name}"))
        for index in ("ix_messages_key", "ix_messages_topic"):
            on = " ON messages" if connection.dialect.name == "mysql" else ""
            connection.execute(sa.text(f"DROP INDEX {index}{on}"))
        connection.execute(sa.text("DELETE FROM counters"))
    migrate(url)
    test_the_migrations_make_what_the_code_believes(url)


def test_a_schema_of_a_newer_dq_is_refused(url: str) -> None:
    with _blocking(url).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(MigrationFailed, match="9999"):
        migrate(url)


def test_an_unreachable_database_is_away(tmp_path: Path) -> None:
    with pytest.raises(DatabaseAway):
        migrate("mysql+aiomysql://root@127.0.0.1:1/dq")
    (tmp_path / "dq.db").mkdir()
    with pytest.raises(DatabaseAway):
        migrate(f"sqlite+aiosqlite:///{tmp_path}/dq.db")
    with pytest.raises(MigrationFailed, match="file"):
        migrate("sqlite+aiosqlite://")
