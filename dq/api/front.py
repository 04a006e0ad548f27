"""The producers' door: plain pushes are taken here, at a fraction of what aiohttp costs.

A connection begins here. As long as plain pushes come on it (dq/api/heads.py says which are), they
are read, begun and answered in order without a task or a parser of their own; at the first request
that is anything else, the connection and all that came and was not answered is handed over to
aiohttp, which keeps it to its end. What a push means and is answered is decided in
dq/api/pushes.py, for both.

Invariant: each byte that came belongs to one request, and is read by this module or by aiohttp,
never by both.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dq.api.app import STOP_WITHIN_S, make_app, make_runner
from dq.api.connection import Connection
from dq.api.deps import Api, Commits
from dq.api.guard import Guard
from dq.api.heads import Head, Heads
from dq.api.pushes import Pushes
from dq.core.pace import next_turn

LOOK_S = 1.0


@asynccontextmanager
async def serving(deps: Api, listener: socket.socket) -> AsyncIterator[Front]:
    """Serve the API on a socket that listens already, as long as the block lasts; what is being
    committed at the end is brought to its end."""
    loop = asyncio.get_running_loop()
    runner = make_runner(make_app(deps))
    await runner.setup()
    assert runner.server is not None
    front = Front(deps, runner.server)
    server = await loop.create_server(front.connect, sock=listener, backlog=1024)
    looking = asyncio.create_task(front.look_forever())
    try:
        yield front
    finally:
        server.close()
        looking.cancel()
        await asyncio.sleep(0)  # what has come already is still begun
        await front.stop()
        await runner.cleanup()


class Front:
    """What all connections share."""

    def __init__(self, deps: Api, next_protocol: Callable[[], asyncio.Protocol]) -> None:
        """`next_protocol`: makes those protocols to which connections are handed over."""
        self.commits = Commits()
        self.pushes = Pushes(deps)
        self.schedule = deps.schedule
        self.next_protocol = next_protocol
        guard = Guard(deps.settings.api_tokens, [deps.settings.api_host], deps.token_book)
        limits = (self.pushes.limit_bytes, self.pushes.batch_limit_bytes)
        heads = Heads(guard, *limits)
        self.read_head: Callable[[bytes], Head | None] = heads.read
        if deps.token_book is not None:
            deps.token_book.changed.append(heads.forget)
        self.connections: set[Connection] = set()
        self._under_way = 0
        self._is_stopping = False
        self._none_left = asyncio.Event()
        self._has_ended = asyncio.Event()

    def connect(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    def remember(self, connection: Connection) -> None:
        """It is made; at a stop it came too late."""
        self.connections.add(connection)
        if self._is_stopping:
            connection.stop()

    def forget(self, connection: Connection) -> None:
        """It is lost, or aiohttp's now."""
        self.connections.discard(connection)
        if not self.connections:
            self._none_left.set()

    def see_begun(self) -> None:
        """A push is under way."""
        self._under_way += 1

    def see_ended(self) -> None:
        """It has its answer, whether anyone still waits for that or not."""
        self._under_way -= 1
        if not self._under_way:
            self._has_ended.set()

    async def look_forever(self) -> None:
        """Have those connections closed that keep dq waiting."""
        while True:
            await next_turn(LOOK_S)
            now_s = asyncio.get_running_loop().time()
            for connection in tuple(self.connections):
                connection.look(now_s)

    async def stop(self) -> None:
        """What was begun is answered, with `Connection: close`, and brought to its end."""
        self._is_stopping = True
        for connection in tuple(self.connections):
            connection.stop()
        if self.connections:
            self._none_left.clear()
            try:
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._none_left.wait()
            except TimeoutError:
                for connection in tuple(self.connections):
                    connection.abort()
        if self._under_way:
            self._has_ended.clear()
            await self._has_ended.wait()
        await self.commits.finish()
