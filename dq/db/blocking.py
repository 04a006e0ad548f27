"""Whole transactions on SQLite in one go, in a thread of their own.

aiosqlite hands each statement to its thread and back, at some 0.1 ms of CPU; the journal makes a
dozen of them several times a second. Here the thread is changed once a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL

LET_GO_S = 1.0

T = TypeVar("T")


class BlockingSqlite:
    """One connection and the thread that uses it. `prepare` and `begin`: what is done with a new
    connection, and to begin a transaction that writes."""

    def __init__(
        self,
        url: URL,
        timeout_s: float,
        prepare: Callable[[Any, Any], None],
        begin: Callable[[sa.Connection], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._engine = sa.create_engine(
            url.set(drivername="sqlite"),
            pool_size=1,
            max_overflow=1,
            pool_timeout=timeout_s,
            connect_args={
                "timeout": timeout_s * 0.8,
                "isolation_level": None,
                "check_same_thread": False,
            },
        )
        sa.event.listen(self._engine, "connect", prepare)
        sa.event.listen(self._engine, "begin", begin)
        self._thread = ThreadPoolExecutor(1, "dq-sqlite")
        self._in_use: Any = None

    def forget_file(self) -> None:
        """The file is another one now: the next transaction opens it."""
        self._engine.dispose()

    def close(self) -> None:
        """Let go of the connection; a transaction that still runs ends by itself."""
        self._thread.shutdown(wait=False)
        self._engine.dispose()

    async def run(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` gives, in a transaction of its own; committed when this returns.

        Raises TimeoutError and what the driver raises. Cancelled, it is interrupted, and has ended
        or been committed when this raises.
        """
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)
        try:
            done, _ = await asyncio.wait([future], timeout=self._timeout_s)
        except asyncio.CancelledError:
            await self._interrupt(future)
            raise
        if not done:
            await self._interrupt(future)
            raise TimeoutError
        return future.result()

    def _transact(self, work: Callable[[sa.Connection], T]) -> T:
        with self._engine.connect() as conn:
            self._in_use = conn.connection.driver_connection
            try:
                with conn.begin():
                    return work(conn)
            finally:
                self._in_use = None

    async def _interrupt(self, future: asyncio.Future[T]) -> None:
        """What comes of it is nobody's business any more; that it ends is."""
        if (driver := self._in_use) is not None:
            driver.interrupt()
        done, _ = await asyncio.wait([future], timeout=LET_GO_S)
        if done and not future.cancelled():
            future.exception()
