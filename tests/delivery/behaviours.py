"""All the ways in which a HostileServer answers, one function each, known by its name.

A path's first part is the name, what follows it are the exchange's arguments.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.delivery.hostile import HostileServer, Received

OK_BODY = b'{"code":200}'
STOLEN = b'{"stolen":true}'
DRIP_S = 0.05


@dataclass
class Exchange:
    """One request being answered; `served` says how many this connection has had before."""

    server: HostileServer
    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    served: int
    arguments: list[str]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.server.sent_bytes += len(data)

    async def reply(self, status: int = 200, body: bytes = OK_BODY, *headers: str) -> None:
        """A whole, correct reply."""
        await self.send(reply_bytes(status, body, *headers))

    async def close(self) -> None:
        """Say goodbye with a FIN."""
        self.writer.close()

    async def wait_for_the_end(self) -> None:
        """Say nothing until the caller leaves."""
        await self.reader.read()
        self.writer.close()

    async def repeat(self, data: bytes) -> None:
        """Until the caller leaves."""
        while True:
            await self.send(data)

    async def drip(self, data: bytes) -> None:
        """A byte at a time."""
        for byte in data:
            await self.send(bytes((byte,)))
            await asyncio.sleep(DRIP_S)


def reply_bytes(status: int, body: bytes, *headers: str) -> bytes:
    """A reply with its length; `headers` are whole lines."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def _ok(exchange: Exchange) -> None:
    await exchange.reply()


async def _echo(exchange: Exchange) -> None:
    await exchange.reply(200, exchange.request.body)


async def _status(exchange: Exchange) -> None:
    status = int(exchange.arguments[0])
    await exchange.reply(status, f"status {status}".encode())


async def _fails(exchange: Exchange) -> None:
    """/fails/2/...: the first two requests to this path fail, the others succeed."""
    path = exchange.request.path
    count = sum(request.path == path for request in exchange.server.requests)
    await exchange.reply(500 if count <= int(exchange.arguments[0]) else 200)


async def _empty(exchange: Exchange) -> None:
    await exchange.reply(200, b"")


async def _no_content(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")


async def _chunked(exchange: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    await exchange.send(head + b'6;note=1\r\n{"code\r\n6\r\n":200}\r\n0\r\nTrailer: x\r\n\r\n')


async def _until_close(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.0 200 OK\r\n\r\n" + OK_BODY)
    await exchange.close()


async def _slow(exchange: Exchange) -> None:
    """/slow/0.2: a good reply after so many seconds."""
    await asyncio.sleep(float(exchange.arguments[0]))
    await exchange.reply()


async def _big(exchange: Exchange) -> None:
    """/big/70000: a body of so many bytes."""
    await exchange.reply(200, b"x" * int(exchange.arguments[0]))


async def _retry_after(exchange: Exchange) -> None:
    """/retry_after/503/120: the last part is the header's value, with _ for a space."""
    status, value = exchange.arguments
    await exchange.reply(int(status), b"later", f"Retry-After: {value.replace('_', ' ')}")


async def _hints(exchange: Exchange) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    await exchange.send(hint + b"HTTP/1.1 100 Continue\r\n\r\n" + reply_bytes(200, OK_BODY))


async def _cookie(exchange: Exchange) -> None:
    await exchange.reply(200, OK_BODY, "Set-Cookie: who=somebody; Path=/")


async def _hang(exchange: Exchange) -> None:
    await exchange.wait_for_the_end()


async def _unread(exchange: Exchange) -> None:
    """The request's body is never read, so its caller's leaving isn't seen."""
    await asyncio.Event().wait()


async def _unread_early(exchange: Exchange) -> None:
    """An answer before the request's body is read, which it never is."""
    await exchange.reply(413, b"too much")
    await asyncio.Event().wait()


async def _drip(exchange: Exchange) -> None:
    await exchange.drip(reply_bytes(200, b"x" * 1000))


async def _drip_body(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    await exchange.drip(b"x" * 1000)


async def _endless(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
    await exchange.repeat(b"x" * 65536)


async def _endless_chunks(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await exchange.repeat(b"4\r\nxxxx\r\n" * 1000)


async def _endless_headers(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    await exchange.repeat(b"X-More: and more\r\n" * 100)


async def _drip_headers(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    await exchange.drip(b"X-More: and more\r\n" * 1000)


async def _endless_line(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    await exchange.repeat(b"x" * 65536)


async def _continues(exchange: Exchange) -> None:
    await exchange.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


async def _gzip_bomb(exchange: Exchange) -> None:
    await exchange.reply(200, _bomb(), "Content-Encoding: gzip")


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(b"\0" * 100_000_000)


async def _redirect(exchange: Exchange) -> None:
    await exchange.reply(302, b"moved", f"Location: {exchange.server.url('/ok')}")


async def _half(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
    await exchange.close()


async def _half_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
    await exchange.close()


async def _half_chunks(exchange: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    await exchange.send(head + b"4\r\nhalf\r\n")
    await exchange.close()


async def _bad_chunks(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n")
    await exchange.wait_for_the_end()


async def _garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\xff\x1b[31mSSH-2.0-OpenSSH_9.9\r\n<script>\r\n" * 20)
    await exchange.wait_for_the_end()


async def _two_lengths(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx")


async def _upgrade(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n??")


async def _no_reply(exchange: Exchange) -> None:
    await exchange.close()


async def _reset(exchange: Exchange) -> None:
    _reset_connection(exchange.writer)


async def _half_reset(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
    await asyncio.sleep(DRIP_S)
    _reset_connection(exchange.writer)


async def _closes(exchange: Exchange) -> None:
    """/closes/3: the connection is closed, without a word before, after three good replies."""
    await exchange.reply()
    if exchange.served + 1 >= int(exchange.arguments[0]):
        await exchange.close()


async def _stale(exchange: Exchange) -> None:
    """Good on a fresh connection; on a used one the request is lost as the connection ends."""
    if exchange.served:
        await exchange.close()
    else:
        await exchange.reply()


async def _stale_reset(exchange: Exchange) -> None:
    """The same, by a reset."""
    if exchange.served:
        _reset_connection(exchange.writer)
    else:
        await exchange.reply()


async def _twice(exchange: Exchange) -> None:
    """A second reply in the same packet."""
    await exchange.send(reply_bytes(200, OK_BODY) + reply_bytes(200, STOLEN))


async def _twice_later(exchange: Exchange) -> None:
    """A second reply a moment later, half of one with /twice_later/half."""
    await exchange.reply()
    await asyncio.sleep(DRIP_S)
    more = reply_bytes(200, STOLEN)
    await exchange.send(more[:20] if exchange.arguments else more)


def _reset_connection(writer: asyncio.StreamWriter) -> None:
    """Close with a RST instead of a FIN."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


BEHAVIOURS: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    name[1:]: function
    for name, function in list(globals().items())
    if name.startswith("_") and getattr(function, "__annotations__", {}).keys() >= {"exchange"}
}
