"""Brings the database to the newest schema in sql/; many processes may try at once.

Plain blocking code with the blocking drivers: it is called before any loop exists, or in a thread.
One migrates, the others wait and then find nothing to do. On MySQL the lock is the server's
(GET_LOCK), because other hosts migrate too; on SQLite it is a flock on the database's folder, and
the whole migration is one transaction, so a kill in the middle leaves nothing half made.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import InterfaceError, OperationalError

import dq
from dq.core.clock import mono_ms
from dq.core.errors import DatabaseAway, DqError

LOCK_WAIT_S = 60
_CONNECT_S = 10
_READ_S = 900


class MigrationFailed(DqError):
    """The schema can't be brought to what this version of dq needs."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"the database's schema can't be migrated: {detail}")


def migrate(url: str) -> None:
    """Create or upgrade the schema at `url`, the same URL that Database takes.

    Raises DatabaseAway when it can't be reached or the lock is not to be had within LOCK_WAIT_S,
    MigrationFailed for anything else.
    """
    parsed = make_url(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            _migrate_sqlite(parsed)
        else:
            _migrate_mysql(parsed)
    except (OperationalError, InterfaceError) as error:
        raise DatabaseAway(str(error.orig)) from error
    except (sa.exc.SQLAlchemyError, CommandError) as error:
        raise MigrationFailed(str(error)) from error


def script_folder() -> Path:
    """sql/: beside the package in a checkout, inside it when installed."""
    package = Path(dq.__file__).parent
    inside = package / "sql"
    return inside if inside.is_dir() else package.parent / "sql"


def _migrate_sqlite(url: URL) -> None:
    if not url.database or url.database == ":memory:":
        raise MigrationFailed("SQLite needs a file: its data is shared by several processes")
    path = Path(url.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        url.set(drivername="sqlite"),
        poolclass=sa.NullPool,
        connect_args={"timeout": LOCK_WAIT_S, "isolation_level": None},
    )
    sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE"))
    with _folder_lock(path.parent), _closing(engine):
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA journal_mode=WAL").close()
        with engine.begin() as connection:
            _upgrade(connection)


def _migrate_mysql(url: URL) -> None:
    engine = sa.create_engine(
        url.set(drivername="mysql+pymysql"),
        poolclass=sa.NullPool,
        connect_args={
            "charset": "utf8mb4",
            "connect_timeout": _CONNECT_S,
            "read_timeout": _READ_S,
            "write_timeout": _READ_S,
        },
    )
    with _closing(engine), engine.begin() as connection:
        _take_server_lock(connection, url)
        _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(script_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _closing(engine: Engine) -> Iterator[None]:
    try:
        yield
    finally:
        engine.dispose()


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """On the folder: closing a second handle of the file itself would drop SQLite's own locks."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        deadline_ms = mono_ms() + LOCK_WAIT_S * 1000
        while not _try_lock(fd):
            if mono_ms() > deadline_ms:
                raise DatabaseAway(f"another process has held {folder} for {LOCK_WAIT_S} s")
            time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_server_lock(connection: Connection, url: URL) -> None:
    """Held until the connection closes, which is after its commit.

    Locks of MySQL are the whole server's, so the database is in the name (64 bytes at most).
    """
    name = f"dq.migrate.{blake2b((url.database or '').encode(), digest_size=16).hexdigest()}"
    got = connection.scalar(sa.text("SELECT GET_LOCK(:name, :s)"), {"name": name, "s": LOCK_WAIT_S})
    if got != 1:
        raise DatabaseAway(f"another process has been migrating for {LOCK_WAIT_S} s")
