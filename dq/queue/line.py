"""A connection for a node's scripts: many calls on their way at a time, answered in order.

redis-py takes a connection from its pool for each call, looks whether it still lives, and gives it
back, and an answer passes a stream, a task and a timeout on its way. Here redis-py opens a
connection (TLS, passwords, Sentinel), and then it is ours: it stays open, calls follow each other
on it, and hiredis reads the answers.

A call that was cut may have been carried out: who calls knows what to do about that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from hiredis import PushNotification, Reader
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

SILENT_S = 4.5
"""A connection on which somebody waited in vain for so long is given up, as nobody may ever say
that it is broken."""

_NOTHING_YET = object()


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
            self._talk.end(ConnectionError("the connection was given up"))
            self._talk = None


class _Talk(asyncio.Protocol):
    """An open connection and who waits for an answer on it."""

    def __init__(self, connection: AbstractConnection) -> None:
        """Takes over what `connection` has opened: all that it asked has been answered."""
        self._connection = connection
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._heard_s = 0.0
        self._reader = Reader(
            protocolError=InvalidResponse,
            replyError=DefaultParser.parse_error,
            notEnoughData=_NOTHING_YET,
        )
        writer = connection._writer
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)
        self.is_over = False
        if self._transport.is_closing():
            self.end(ConnectionError("the node hung up"))

    async def ask(self, commands: Sequence[bytes]) -> list[Any]:
        if self.is_over:
            raise ConnectionError("the connection was cut")
        answers: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in commands]
        self._waiting += answers
        asked_s = self._loop.time()
        try:
            self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))
            return [await answer for answer in answers]
        except asyncio.CancelledError:
            if self._loop.time() - max(asked_s, self._heard_s) > SILENT_S:
                self.end(ConnectionError("the connection was given up"))
            raise
        finally:
            for answer in answers:
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # of several errors the first is told

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not _NOTHING_YET and not self.is_over:
                self._tell(answer)
        except RedisError as error:
            self.end(error)

    def _tell(self, answer: Any) -> None:
        """Raises RedisError when nothing more can be believed."""
        if isinstance(answer, PushNotification):
            return
        is_error = isinstance(answer, Exception)
        is_for_one = isinstance(answer, ResponseError) and not isinstance(answer, ReadOnlyError)
        if is_error and not is_for_one:
            raise answer  # it loads its data, or became a replica: another connection may do better
        if not self._waiting:
            raise ConnectionError(f"an answer that nobody asked for: {answer!r:.100}")
        waiting = self._waiting.popleft()
        if waiting.done():
            return
        if is_error:
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error if isinstance(error, OSError) else ConnectionError("the node hung up"))

    def end(self, reason: Exception) -> None:
        """Whoever waits is told so, and the connection is closed; once."""
        if self.is_over:
            return
        self.is_over = True
        self._transport.abort()
        # `disconnect` is for those who can wait
        self._connection._close()  # type: ignore[no-untyped-call]
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(reason)


def pack(*args: bytes | str | int) -> bytes:
    """A command as it is sent."""
    return b"*%d\r\n%b" % (len(args), pack_args(args))


def pack_args(args: Iterable[bytes | str | int]) -> bytes:
    """Arguments of a command as they are sent: bytes, texts and whole numbers."""
    raw = [one if type(one) is bytes else str(one).encode() for one in args]
    return b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in raw])
