"""A load of pushes over keep-alive connections, cheap enough not to be what is measured.

    python -m tests.bench.load PORT CONNECTIONS COUNT JOBS_A_REQUEST PREFIX

Each connection sends its next request when the last one is answered; prints what was answered, by
status, and the seconds that it took, as JSON. For a bench of its own process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import cast

import uvloop

HEAD = (
    b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
JOB = b'{"topic":"bench","id":"%s-%d","body":{"order":%d,"text":"%s"},"delay":86400}'
TEXT = b"x" * 40


class Load:
    """What is left to send, and what came back."""

    def __init__(self, port: int, requests: int, jobs: int, prefix: str) -> None:
        self._port = port
        self._jobs = jobs
        self._prefix = prefix.encode()
        self._left = requests
        self._sent = 0
        self._answered = 0
        self._requests = requests
        self.statuses: Counter[str] = Counter()
        self.done = asyncio.get_running_loop().create_future()

    def next_request(self) -> bytes | None:
        """None when all have been sent."""
        if not self._left:
            return None
        self._left -= 1
        first = self._sent
        self._sent += self._jobs
        jobs = [self._job(number) for number in range(first, first + self._jobs)]
        if self._jobs == 1:
            return HEAD % (b"/v1/jobs", self._port, len(jobs[0])) + jobs[0]
        body = b'{"jobs":[%s]}' % b",".join(jobs)
        return HEAD % (b"/v1/jobs/batch", self._port, len(body)) + body

    def _job(self, number: int) -> bytes:
        return JOB % (self._prefix, number, number, TEXT)

    def take(self, answer: bytes) -> None:
        self.statuses[answer[9:12].decode()] += 1
        self._answered += 1
        if self._answered == self._requests:
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        request = self._load.next_request()
        if request is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        head, end, body = data.partition(b"\r\n\r\n")
        at = head.find(b"Content-Length: ")
        if not end or len(body) < int(head[at + 16 :].split(b"\r", 1)[0]):
            self._rest = data
            return
        self._rest = b""
        self._load.take(head)
        self._send()


async def run(port: int, connections: int, count: int, jobs: int, prefix: str) -> None:
    loop = asyncio.get_running_loop()
    load = Load(port, count // jobs, jobs, prefix)
    began = time.perf_counter()
    opening = (
        loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
        for _ in range(connections)
    )
    opened = await asyncio.gather(*opening)
    await load.done
    took_s = time.perf_counter() - began
    for transport, _ in opened:
        transport.close()
    print(json.dumps({"seconds": took_s, "statuses": load.statuses}))


if __name__ == "__main__":
    port, connections, count, jobs = (int(word) for word in sys.argv[1:5])
    uvloop.run(run(port, connections, count, jobs, sys.argv[5]))
