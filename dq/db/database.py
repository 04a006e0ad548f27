"""The one door to SQL: transactions that end within their bound, or say that the database is away.

Made in the process that uses it, after the fork: a connection never crosses one. Whatever the
drivers call a lost, slow, locked or full database comes out as DatabaseAway; aiomysql by itself
would wait for ever for a server that has stopped. What a single row is to blame for comes out as
the driver's error, see `is_data_error`.

SQLite runs in WAL with synchronous=NORMAL: a power cut may take back the last commits, whole and
in order. For the journal that is nothing: its cursors go back with its rows, and the writers' logs,
which are the durable truth, are shipped again from there. What has no log behind it, topics and
settings, is committed with `to_disk`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.db.blocking import BlockingSqlite

TIMEOUT_S = 10.0
_POOL = 4
_LET_GO_S = 1.0
_SETTLED_MS = 100

T = TypeVar("T")

_BEGIN = "dq_begin"
_READ = ("BEGIN",)
_WRITE = ("PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE")
_WRITE_TO_DISK = ("PRAGMA synchronous=FULL", "BEGIN IMMEDIATE")

# MySQL: null, duplicate, packet too large, out of range, truncated, no text, no value, too long.
_MYSQL_DATA = {1048, 1062, 1153, 1264, 1265, 1292, 1300, 1301, 1366, 1406}
_MYSQL_CONTENDED = {1205, 1213}
# SQLite: too big, constraint, mismatch; busy, locked, read-only, interrupted, I/O, corrupt, full,
# can't open, protocol, no database.
_SQLITE_DATA = {18, 19, 20}
_SQLITE_AWAY = {5, 6, 8, 9, 10, 11, 13, 14, 15, 26}
_MYSQL_NO_TABLE = 1146


class Contended(DatabaseAway):
    """Another transaction was in the way; the same one may well succeed at once."""


class Database:
    """A small pool of connections. `timeout_s` bounds each transaction from asking to commit."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._url = make_url(url)
        self.timeout_s = timeout_s
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self._engine: AsyncEngine | None = None
        self._blocking: BlockingSqlite | None = None
        self._file: tuple[int, int] | None = None
        self._opening: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """Ready to connect; nothing is asked of the server yet, so it may be down."""
        self._engine = self._sqlite_engine() if self.is_sqlite else self._mysql_engine()

    async def close(self) -> None:
        """Let go of all connections; a server that doesn't answer is not waited for."""
        if self._opening:
            await asyncio.wait(self._opening, timeout=_LET_GO_S)
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.dispose()
        if self._blocking is not None:
            blocking, self._blocking = self._blocking, None
            blocking.close()

    def trace(self) -> object:
        """What changes with every commit of anybody, and costs two looks at the disk; None where
        that can't be told. Asked before reading: with the same trace again, the same is read."""
        if not self.is_sqlite:
            return None
        file = self._url.database or ""
        try:
            stats = [os.stat(file)]
            with contextlib.suppress(FileNotFoundError):  # nobody has it open
                stats.append(os.stat(f"{file}-wal"))
        except OSError:
            return None
        # Time stamps are coarse: another commit just now could have the same one.
        newest_ms = max(stat.st_mtime_ns for stat in stats) // 1_000_000
        if clock.now_ms() - newest_ms < _SETTLED_MS:
            return None
        return [(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]

    async def check(self) -> None:
        """Raises DatabaseAway unless the database answers."""
        touch = "PRAGMA schema_version" if self.is_sqlite else "SELECT 1"
        async with self.read() as conn:
            await conn.execute(sa.text(touch))

    @asynccontextmanager
    async def begin(self, *, to_disk: bool = False) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes: committed at the end of the block, rolled back on an error.

        `to_disk`: it survives a power cut of this machine. Raises DatabaseAway.
        """
        async with self._bounded(_WRITE_TO_DISK if to_disk else _WRITE) as conn:
            yield conn

    async def write(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` gives, in a transaction that writes; for many statements in a row. `work`
        blocks and may be called in another thread. Raises DatabaseAway."""
        if not self.is_sqlite:
            async with self.begin() as conn:
                return await conn.run_sync(work)
        if self._engine is None:
            raise DatabaseAway("it was not opened")
        await self._follow_file(self._engine)
        if self._blocking is None:
            self._blocking = BlockingSqlite(
                self._url, self.timeout_s, _prepare_sqlite, _begin_sqlite_to_write
            )
        try:
            return await self._blocking.run(work)
        except TimeoutError as error:
            raise DatabaseAway(f"no answer within {self.timeout_s:g} s") from error
        except (DBAPIError, PoolTimeout, OSError) as error:
            if (away := as_away(error)) is None:
                raise
            raise away from error

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads; on SQLite it waits for no writer. Raises DatabaseAway."""
        async with self._bounded(_READ) as conn:
            yield conn

    @asynccontextmanager
    async def _bounded(self, begin: tuple[str, ...]) -> AsyncIterator[AsyncConnection]:
        conn: AsyncConnection | None = None
        # On SQLite the interrupt comes first: a cancelled thread would still have to be waited for.
        bound_s = self.timeout_s + (_LET_GO_S if self.is_sqlite else 0)
        try:
            async with asyncio.timeout(bound_s) as bound:
                conn = await self._connect()
                async with self._interrupted_in_time(conn):
                    await conn.execution_options(**{_BEGIN: begin})
                    await conn.begin()
                    yield conn
                    await conn.commit()
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise DatabaseAway(f"no answer within {self.timeout_s:g} s") from error
        except (DBAPIError, PoolTimeout, OSError) as error:
            if (away := as_away(error)) is None:
                raise
            raise away from error
        finally:
            if conn is not None:
                await _let_go(conn)

    async def _connect(self) -> AsyncConnection:
        if self._engine is None:
            raise DatabaseAway("it was not opened")
        if not self.is_sqlite:
            return await self._engine.connect()
        await self._follow_file(self._engine)
        opening = asyncio.ensure_future(self._engine.connect())
        self._keep(opening)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread goes on to open it: nobody else would close what comes of that.
            opening.add_done_callback(self._close_unwanted)
            raise

    def _keep(self, work: asyncio.Future[Any]) -> None:
        self._opening.add(work)
        work.add_done_callback(self._opening.discard)

    def _close_unwanted(self, opening: asyncio.Future[AsyncConnection]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._keep(asyncio.ensure_future(_let_go(opening.result())))

    async def _follow_file(self, engine: AsyncEngine) -> None:
        """Open handles would go on writing into a file that was deleted or replaced."""
        try:
            stat = os.stat(self._url.database or "")
        except OSError as error:
            raise DatabaseAway(f"{self._url.database}: {error.strerror}; run migrate") from error
        identity = (stat.st_dev, stat.st_ino)
        if identity != self._file:
            self._file = identity
            await engine.dispose()
            if self._blocking is not None:
                self._blocking.forget_file()

    @asynccontextmanager
    async def _interrupted_in_time(self, conn: AsyncConnection) -> AsyncIterator[None]:
        if not self.is_sqlite:
            yield
            return
        driver: Any = (await conn.get_raw_connection()).driver_connection
        watchdog = asyncio.create_task(_interrupt(driver, self.timeout_s))
        try:
            yield
        finally:
            watchdog.cancel()

    def _sqlite_engine(self) -> AsyncEngine:
        wait_s = self.timeout_s * 0.8
        engine = create_async_engine(
            self._url,
            pool_size=_POOL,
            max_overflow=0,
            pool_timeout=self.timeout_s,
            connect_args={"timeout": wait_s, "isolation_level": None},
        )
        sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine

    def _mysql_engine(self) -> AsyncEngine:
        lock_wait_s = max(1, int(self.timeout_s / 2))
        return create_async_engine(
            self._url,
            pool_size=_POOL,
            max_overflow=0,
            pool_timeout=self.timeout_s,
            pool_pre_ping=True,
            pool_recycle=600,
            isolation_level="READ COMMITTED",
            # No connect_timeout: aiomysql would use `asyncio.wait_for`, see `_let_go`.
            connect_args={
                "charset": "utf8mb4",
                "init_command": "SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
                f" innodb_lock_wait_timeout={lock_wait_s}",
            },
        )


def as_away(error: BaseException) -> DatabaseAway | None:
    """What the driver's error means when it is the database's state, None when it is ours."""
    words = str(getattr(error, "orig", None) or error)
    if isinstance(error, OSError | PoolTimeout):
        return DatabaseAway(words)
    if not isinstance(error, DBAPIError) or is_data_error(error):
        return None
    if _lacks_schema(error):
        return DatabaseAway(f"{words}; dq-journal makes the schema")
    if (code := _sqlite_code(error)) is not None:
        return DatabaseAway(words) if code in _SQLITE_AWAY else None
    if _mysql_code(error) in _MYSQL_CONTENDED:
        return Contended(words)
    lost = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    return DatabaseAway(words) if lost or error.connection_invalidated else None


def _lacks_schema(error: DBAPIError) -> bool:
    """True before the first migration has come to its end."""
    if _sqlite_code(error) is not None:
        return str(error.orig).startswith("no such table")
    return _mysql_code(error) == _MYSQL_NO_TABLE


def is_data_error(error: BaseException) -> bool:
    """True when a value of the statement is to blame: another row would have been taken."""
    if isinstance(error, OverflowError | UnicodeError | sa.exc.DataError | sa.exc.IntegrityError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if (code := _sqlite_code(error)) is not None:
        return code in _SQLITE_DATA
    return _mysql_code(error) in _MYSQL_DATA


def _sqlite_code(error: DBAPIError) -> int | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _mysql_code(error: DBAPIError) -> int:
    arguments = error.orig.args if error.orig is not None else ()
    return arguments[0] if arguments and isinstance(arguments[0], int) else 0


async def _interrupt(driver: Any, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await driver.interrupt()


async def _let_go(conn: AsyncConnection) -> None:
    """Give the connection back; one that can't even roll back is thrown away.

    Not by `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that comes just as
    the connection is back: the caller would go on for ever.
    """
    try:
        async with asyncio.timeout(_LET_GO_S):
            await conn.close()
    except (TimeoutError, OSError, SQLAlchemyError):
        if not conn.closed:
            await conn.invalidate()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA journal_size_limit=67108864")
    cursor.execute("PRAGMA wal_autocheckpoint=4000")
    cursor.execute("PRAGMA cache_size=-16000")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    for statement in connection.get_execution_options().get(_BEGIN, _READ):
        connection.exec_driver_sql(statement)


def _begin_sqlite_to_write(connection: sa.Connection) -> None:
    for statement in _WRITE:
        connection.exec_driver_sql(statement)
