"""A connection for a node's scripts: many calls on their way at a time, answered in order.

redis-py takes a connection from its pool for each call, looks whether it still lives, and gives it
back, which costs as much as a small script. Here one connection stays open and calls follow each
other on it; opening it (TLS, passwords, Sentinel) and reading answers stay redis-py's.

A call that was cut may have been carried out: who calls knows what to do about that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ReadOnlyError, RedisError, ResponseError

SILENT_S = 4.5
"""A connection on which somebody waited in vain for so long is given up, as nobody may ever say
that it is broken."""


class Line:
    """Opened when it is first needed, and again after it was cut."""

    def __init__(self, client: Any) -> None:
        """`client`: a redis.asyncio.Redis, for how connections are made."""
        self._pool = client.connection_pool
        self._opening = asyncio.Lock()
        self._talk: _Talk | None = None

    async def call(self, command: bytes) -> Any:
        """The answer to a packed command (see `pack_args`). Raises RedisError, OSError."""
        (answer,) = await self.call_all([command])
        return answer

    async def call_all(self, commands: Sequence[bytes]) -> list[Any]:
        """The answers to commands that are sent together; the first error is raised."""
        talk = self._talk
        if talk is None or talk.is_over:
            talk = await self._open()
        return await talk.ask(commands)

    async def _open(self) -> _Talk:
        async with self._opening:
            if self._talk is None or self._talk.is_over:
                connection = self._pool.make_connection()
                try:
                    await connection.connect()
                except BaseException:
                    await connection.disconnect(nowait=True)
                    raise
                self._talk = _Talk(connection)
            return self._talk

    async def close(self) -> None:
        """Nobody is answered any more."""
        if self._talk is not None:
            await self._talk.close()
            self._talk = None


class _Talk:
    """An open connection and who waits for an answer on it."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._heard_s = 0.0
        self._reading = self._loop.create_task(self._read())

    @property
    def is_over(self) -> bool:
        return self._reading.done()

    async def ask(self, commands: Sequence[bytes]) -> list[Any]:
        if not self._connection.is_connected:  # redis-py would open it again, with nobody to read
            raise ConnectionError("the connection was cut")
        answers: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in commands]
        self._waiting += answers
        asked_s = self._loop.time()
        try:
            await self._connection.send_packed_command(commands, check_health=False)
            return [await answer for answer in answers]
        except asyncio.CancelledError:
            if self._loop.time() - max(asked_s, self._heard_s) > SILENT_S:
                self._reading.cancel()
            raise
        finally:
            for answer in answers:
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # of several errors the first is told

    async def _read(self) -> None:
        reason: Exception = ConnectionError("the connection was given up")
        try:
            while True:
                self._tell(await self._next_answer())
        except (RedisError, OSError) as error:
            reason = error
        finally:
            for answer in self._waiting:
                if not answer.done():
                    answer.set_exception(reason)
            await self._connection.disconnect(nowait=True)

    async def _next_answer(self) -> Any:
        try:
            return await self._connection.read_response()
        except ReadOnlyError:
            raise  # it is a replica now; another connection may find the master
        except ResponseError as error:
            return error

    def _tell(self, answer: Any) -> None:
        self._heard_s = self._loop.time()
        if not self._waiting:
            raise ConnectionError(f"an answer that nobody asked for: {answer!r:.100}")
        waiting = self._waiting.popleft()
        if waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})


def pack(*args: bytes | str | int) -> bytes:
    """A command as it is sent."""
    return b"*%d\r\n%b" % (len(args), pack_args(args))


def pack_args(args: Iterable[bytes | str | int]) -> bytes:
    """Arguments of a command as they are sent: bytes, texts and whole numbers."""
    raw = [one if type(one) is bytes else str(one).encode() for one in args]
    return b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in raw])
