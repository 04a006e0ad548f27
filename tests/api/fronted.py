"""The API served as dq-server serves it, its front before aiohttp, on parts in memory."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import AsyncExitStack

import aiohttp

from dq.api.deps import Api
from dq.api.front import Front, serving
from tests.api.conftest import Served

TAIL = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""Ends a connection when all before it has been answered."""


class Client:
    """A connection on which a test says exactly what it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """The next one, head and body."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)
        length = re.search(rb"Content-Length: (\d+)", head)
        return head + await self.reader.readexactly(int(length[1]) if length else 0)

    async def rest(self) -> bytes:
        """All until the server closes."""
        return await asyncio.wait_for(self.reader.read(), 10)


class Fronted(Served):
    """Like Served, with the front before it; `stop` is what a graceful stop does."""

    front: Front

    async def connect(self, *, buffer_bytes: int | None = None) -> Client:
        """`buffer_bytes`: how much the kernel takes in for a client that doesn't read."""
        plug = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio knows it for TCP only so
        plug.setblocking(False)
        if buffer_bytes:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", self.port))
        except OSError:
            plug.close()
            raise
        reader, writer = await asyncio.open_connection(sock=plug)
        self._clients.callback(writer.close)
        return Client(reader, writer)

    async def start(self, stack: AsyncExitStack) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        parts = (self.schedule, self.book, self.journal, lambda: self.parts, self.audit)
        self._serving = await stack.enter_async_context(AsyncExitStack())
        stack.callback(self.schedule.gate.set)
        deps = Api(self.settings, *parts)
        self.front = await self._serving.enter_async_context(serving(deps, listener))
        self._clients = await stack.enter_async_context(AsyncExitStack())
        self.session = await stack.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        )

    async def stop(self) -> None:
        await self._serving.aclose()


def request(
    body: bytes = b'{"topic":"t","id":"1"}',
    *more: bytes,
    path: bytes = b"/v1/jobs",
    host: bytes = b"localhost",
) -> bytes:
    """A plain push; `more` are further lines of its head."""
    lines = [b"POST %s HTTP/1.1" % path, b"Host: " + host, b"Content-Type: application/json"]
    lines += [b"Content-Length: %d" % len(body), *more]
    return b"\r\n".join([*lines, b"", body])


def push(id: str, *more: bytes) -> bytes:
    """A plain push of a job of topic t."""
    return request(b'{"topic":"t","id":"%s"}' % id.encode(), *more)


def statuses(answers: bytes) -> list[int]:
    """Of all answers that came on a connection."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d+) ", answers)]


def ids(answers: bytes) -> list[str]:
    """The jobs that were answered about, in order."""
    return [id.decode() for id in re.findall(rb'"id":"([^"]*)"', answers)]
