"""A receiver of callbacks that behaves as badly as it is asked to, on a raw socket.

    async with HostileServer() as server:
        await caller.call(... server.url("/half") ...)
        assert server.requests[0].body == b"..."

The first part of a path names the behaviour, the rest is an argument for it or the test's own:
/status/503, /ok/order/42. All of them are in behaviours.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.delivery.behaviours import BEHAVIOURS, OK_BODY, Exchange

__all__ = ["OK_BODY", "HostileServer", "Received", "free_port"]


@dataclass(frozen=True)
class Received:
    """One request as it came. `connection` counts accepted connections from 0."""

    at_ms: int
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The first header of that name, in any spelling."""
        found = (value for key, value in self.headers if key.lower() == name.lower())
        return next(found, None)


class HostileServer:
    """Listens on loopback while its `async with` lasts; requests are in order of arrival.

    `sent_bytes` counts what the kernel took of endless replies.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.open_connections = 0
        self.sent_bytes = 0
        self.port = 0
        self._host = host
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str, host: str | None = None) -> str:
        """The address of `path`, here or under another name of this machine."""
        return f"{'https' if self._tls else 'http'}://{host or self._host}:{self.port}{path}"

    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, self._host, self.port, ssl=self._tls, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_connections += 1
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError):
            pass  # the caller left, as it should on most of these
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, self.connections = self.connections, self.connections + 1
        served = 0
        while True:
            received = await _read_request(reader, connection)
            self.requests.append(received)
            _, name, *arguments = received.path.partition("?")[0].split("/")
            exchange = Exchange(self, received, reader, writer, served, arguments)
            await BEHAVIOURS[name](exchange)
            if writer.is_closing():
                return
            served += 1


def free_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    at_ms = time.time_ns() // 1_000_000
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for key, value in headers if key.lower() == "content-length"), 0)
    keep = Received(at_ms, method, path, headers, b"", connection)
    if path.startswith("/unread"):
        return keep
    body = await reader.readexactly(length)
    return Received(at_ms, method, path, headers, body, connection)
