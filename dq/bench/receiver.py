"""Where the callbacks of a bench arrive: it answers at once, and knows who came and when.

    python -m dq.bench.receiver

Prints its port. `GET /count` tells how many have come since the last `GET /take?PREFIX`, which
answers what came (Arrived) and forgets it.
"""

from __future__ import annotations

import asyncio
import http.client
from array import array
from typing import cast

import msgspec
import uvloop

from dq.bench.figures import percentile
from dq.core.clock import now_us

_REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_OK_BODY = b'{"code":200}'
_OK = _REPLY % len(_OK_BODY) + _OK_BODY


class Arrived(msgspec.Struct, frozen=True):
    """`jobs`: different ids that begin with the prefix; lateness of all calls that named a due
    time; `last_us`: unix time of the last call."""

    calls: int
    jobs: int
    early: int
    last_us: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Receiver:
    """The receiver as its parent sees it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}/call"

    def count(self) -> int:
        return int(self._ask("/count"))

    def take(self, prefix: str) -> Arrived:
        return msgspec.json.decode(self._ask(f"/take?{prefix}"), type=Arrived)

    def _ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()


class _Calls:
    """All calls since the last take."""

    def __init__(self) -> None:
        self.calls = 0
        self._ids: set[bytes] = set()
        self._late_us = array("q")
        self._last_us = 0

    def add(self, head: bytes) -> None:
        self._last_us = now_us()
        self.calls += 1
        due_ms = _header(head, b"\r\nDQ-Due: ")
        if due_ms:
            self._ids.add(_header(head, b"\r\nDQ-Id: "))
            self._late_us.append(self._last_us - int(due_ms) * 1000)

    def arrived(self, prefix: bytes) -> Arrived:
        late_ms = sorted(us / 1000 for us in self._late_us)
        return Arrived(
            calls=self.calls,
            jobs=sum(one.startswith(prefix) for one in self._ids),
            early=sum(ms < 0 for ms in late_ms),
            last_us=self._last_us,
            p50_ms=percentile(late_ms, 50),
            p99_ms=percentile(late_ms, 99),
            max_ms=late_ms[-1] if late_ms else 0.0,
        )


def _header(head: bytes, name: bytes) -> bytes:
    at = head.find(name)
    return head[at + len(name) :].split(b"\r", 1)[0] if at >= 0 else b""


class _Connection(asyncio.Protocol):
    calls = _Calls()

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        head, end, body = data.partition(b"\r\n\r\n")
        length = int(_header(head, b"\r\nContent-Length: ") or 0)
        if not end or len(body) < length:
            self._rest = data
            return
        self._rest = body[length:]
        if data.startswith(b"POST"):
            _Connection.calls.add(head)
            self._transport.write(_OK)
        else:
            self._transport.write(self._told(data.split(b" ", 2)[1]))

    def _told(self, path: bytes) -> bytes:
        name, _, prefix = path.partition(b"?")
        body = b"%d" % _Connection.calls.calls
        if name == b"/take":
            body = msgspec.json.encode(_Connection.calls.arrived(prefix))
            _Connection.calls = _Calls()
        return _REPLY % len(body) + body


async def _receive() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_receive())
