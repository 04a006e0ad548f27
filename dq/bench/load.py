"""A load of pushes over keep-alive connections, cheap enough not to be what is measured.

    python -m dq.bench.load LOAD     (a Load as JSON)

Each connection sends its next request when the last one is answered, or when the rate allows it.
Prints what was answered (Answered) as JSON.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from dq.bench.children import answer_of
from dq.core.clock import mono_ms, now_ms

TOPIC = "bench"
BODY_BYTES = 64
_TICK_S = 0.002
_HEAD = (
    b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
_JOB = b'{"topic":"bench","id":"%s-%d","body":%s,%s}'


class Load(msgspec.Struct, frozen=True):
    """`jobs` of the ids PREFIX-0, PREFIX-1 …, `each` of them a request.

    Due at `due_ms`, if given, or at a random time `spread_ms` from now, or a day from now.
    `rate`: jobs a second; 0: as fast as they are answered.
    """

    port: int
    jobs: int
    prefix: str
    connections: int = 50
    each: int = 1
    due_ms: int = 0
    spread_ms: tuple[int, int] | None = None
    rate: float = 0


class Answered(msgspec.Struct, frozen=True):
    """What came of a load: how many jobs were created, how many answers of each status."""

    seconds: float
    created: int
    statuses: dict[str, int]


def run_load(folder: Path, load: Load, told: Callable[[float], None] | None = None) -> Answered:
    """In a process of its own; BenchFailed when it could not be carried through. `told`: hears the
    seconds so far."""
    words = msgspec.json.encode(load).decode()
    printed = answer_of(folder, "dq.bench.load", words, told=told)
    return msgspec.json.decode(printed, type=Answered)


def body_of(number: int) -> bytes:
    """JSON of BODY_BYTES bytes."""
    head = b'{"order":%d,"text":"' % number
    return head + b"x" * (BODY_BYTES - len(head) - 2) + b'"}'


class Sender:
    """What is left to send, and what came back."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._began_ms = 0.0
        self._sent = 0
        self._answered = 0
        self._created = 0
        self._statuses: Counter[str] = Counter()
        self._idle: list[Connection] = []
        self.done = asyncio.get_running_loop().create_future()

    def next_request(self) -> bytes | None:
        """None when there is nothing to send now."""
        load = self._load
        if self._sent >= self._allowed():
            return None
        numbers = range(self._sent, min(self._sent + load.each, load.jobs))
        self._sent = numbers.stop
        jobs = [self._job(number) for number in numbers]
        if load.each == 1:
            return _HEAD % (b"/v1/jobs", load.port, len(jobs[0])) + jobs[0]
        body = b'{"jobs":[%s]}' % b",".join(jobs)
        return _HEAD % (b"/v1/jobs/batch", load.port, len(body)) + body

    def take(self, head: bytes, body: bytes) -> None:
        self._statuses[head[9:12].decode()] += 1
        self._created += body.count(b'"created"')
        self._answered += 1
        if self._answered == -(-self._load.jobs // self._load.each):
            self.done.set_result(None)

    def rest(self, connection: Connection) -> None:
        """`connection` has nothing to send at the moment."""
        self._idle.append(connection)

    async def pace(self) -> None:
        """Give idle connections what the rate allows, until all is sent. Time counts from here."""
        self._began_ms = mono_ms()
        while self._sent < self._load.jobs:
            for connection in [self._idle.pop() for _ in range(min(len(self._idle), self._open()))]:
                connection.send()
            await asyncio.sleep(_TICK_S)

    def answered(self) -> Answered:
        seconds = (mono_ms() - self._began_ms) / 1000
        return Answered(seconds, self._created, dict(self._statuses))

    def _open(self) -> int:
        return max(0, self._allowed() - self._sent)

    def _allowed(self) -> int:
        if not self._load.rate:
            return self._load.jobs
        allowed = int((mono_ms() - self._began_ms) / 1000 * self._load.rate)
        return min(allowed, self._load.jobs)

    def _job(self, number: int) -> bytes:
        return _JOB % (self._load.prefix.encode(), number, body_of(number), self._due())

    def _due(self) -> bytes:
        if self._load.spread_ms is not None:
            return b'"due":%d' % (now_ms() + random.randint(*self._load.spread_ms))
        return b'"due":%d' % self._load.due_ms if self._load.due_ms else b'"delay":86400'


class Connection(asyncio.Protocol):
    """One request at a time; at rest at first."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender.rest(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._sender.done.done():
            self._sender.done.set_exception(error or ConnectionError("closed by the server"))

    def send(self) -> None:
        request = self._sender.next_request()
        if request is None:
            self._sender.rest(self)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        head, end, body = data.partition(b"\r\n\r\n")
        at = head.find(b"Content-Length: ")
        if not end or len(body) < int(head[at + 16 :].split(b"\r", 1)[0]):
            self._rest = data
            return
        self._rest = b""
        self._sender.take(head, body)
        self.send()


async def _send(load: Load) -> None:
    loop = asyncio.get_running_loop()
    sender = Sender(load)
    opening = (
        loop.create_connection(lambda: Connection(sender), "127.0.0.1", load.port)
        for _ in range(load.connections)
    )
    opened = await asyncio.gather(*opening)
    await sender.pace()
    await sender.done
    print(msgspec.json.encode(sender.answered()).decode())
    for transport, _ in opened:
        transport.close()


if __name__ == "__main__":
    uvloop.run(_send(msgspec.json.decode(sys.argv[1], type=Load)))
