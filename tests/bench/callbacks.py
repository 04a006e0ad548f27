"""What making a callback costs, against a bare aiohttp client.

    python -m tests.bench.callbacks [JOBS] [ROUNDS]

Three ways to the same receiver, in turns, so that whatever else the machine does hits them all: a
bare aiohttp client and dq's Caller, each alone in its process with 500 requests in flight, and the
whole dq with its defaults, that many jobs due at the same moment. Prints callbacks a second, for
the whole dq from the due time to the last callback, and the calling processes' CPU for 1,000.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import aiohttp
import msgspec
import psutil
import uvloop

from dq.core.callback import CallbackJob, build_request
from dq.core.topic import Topic
from dq.delivery.http import Caller
from tests.e2e.program import ROOT, Program, free_port
from tests.support import wait_until

IN_FLIGHT = 500
AHEAD_S = 12.0
BODY = b'{"order":42,"text":"' + b"x" * 40 + b'"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
OK += b'{"code":200}'


class Run(msgspec.Struct):
    """One run of one of them."""

    per_s: float
    cpu_ms: float


def main() -> None:
    words = [int(word) for word in sys.argv[1:]]
    jobs, rounds = words + [20_000, 5][len(words) :]
    with (
        tempfile.TemporaryDirectory(prefix="dq-bench-") as name,
        _receiver() as port,
        Program(Path(name)) as dq,
    ):
        dq.topic("bench", callback=f"http://127.0.0.1:{port}/call")
        ways: dict[str, Callable[[], Run]] = {
            "bare aiohttp": lambda: _alone("bare", port, jobs),
            "Caller": lambda: _alone("caller", port, jobs),
            "whole dq": lambda: _whole(dq, port, jobs),
        }
        _compare(ways, rounds)


def _compare(ways: dict[str, Callable[[], Run]], rounds: int) -> None:
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        for name in ways if number % 2 else reversed(ways):
            run = ways[name]()
            if number >= 0:  # the first one warms up
                runs[name].append(run)
                print(f"  {name:13}{run.per_s:9,.0f}/s {run.cpu_ms:7.1f} ms", flush=True)
    bare = runs["bare aiohttp"]
    for name, some in runs.items():
        per_s = statistics.median(run.per_s for run in some)
        cpu_ms = statistics.median(run.cpu_ms for run in some)
        rates = [mine.per_s / other.per_s for mine, other in zip(some, bare, strict=True)]
        costs = [other.cpu_ms / mine.cpu_ms for mine, other in zip(some, bare, strict=True)]
        print(f"{name}: {per_s:,.0f}/s, {cpu_ms:.1f} ms of CPU for 1,000 (medians)")
        print(f"    ratio by rate {_spread(rates)}, by CPU {_spread(costs)}", flush=True)


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


@contextmanager
def _receiver() -> Iterator[int]:
    port = free_port()
    words = [sys.executable, "-m", "tests.bench.callbacks", "receiver", str(port)]
    process = subprocess.Popen(words, cwd=ROOT)
    try:
        here = psutil.Process(process.pid)
        wait_until(lambda: any(one.laddr.port == port for one in here.net_connections()), 20)
        yield port
    finally:
        process.terminate()
        process.wait()


# Alone in a process


def _alone(kind: str, port: int, jobs: int) -> Run:
    words = [sys.executable, "-m", "tests.bench.callbacks", kind, str(port), str(jobs)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Run)


async def _measure(call: Callable[[int], Awaitable[None]], jobs: int) -> None:
    numbers = iter(range(jobs))

    async def work() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(call(number) for number in range(IN_FLIGHT)))  # connects
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    print(json.dumps({"per_s": jobs / took_s, "cpu_ms": cpu_s * 1e6 / jobs}))


async def _bare(port: int, jobs: int) -> None:
    url = f"http://127.0.0.1:{port}/call"
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call(number: int) -> None:
            async with session.post(url, data=BODY, headers=headers) as response:
                assert response.status == 200
                await response.read()

        await _measure(call, jobs)


async def _caller(port: int, jobs: int) -> None:
    topic = Topic(topic="bench", callback=f"http://127.0.0.1:{port}/call")
    caller = Caller((), limit=IN_FLIGHT)

    async def call(number: int) -> None:
        job = CallbackJob("bench", str(number), BODY, 0, 0, 1, 10.0, "m")
        answer = await caller.call(build_request(topic, job, 0, "1"))
        assert answer.status == 200, answer

    await _measure(call, jobs)
    await caller.close()


# The whole of it


def _whole(dq: Program, port: int, jobs: int) -> Run:
    """Push `jobs`, all due at the same moment in the future, when what they left has been shipped;
    then count."""
    due_ms = int((time.time() + AHEAD_S) * 1000)
    for begin in range(0, jobs, 1000):
        docs = [
            {"topic": "bench", "id": str(n), "body": json.loads(BODY), "due": due_ms}
            for n in range(begin, min(begin + 1000, jobs))
        ]
        results = dq.call("POST", "/v1/jobs/batch", {"jobs": docs}).json["results"]
        assert all("result" in one for one in results), results[0]
    before = _received(port)
    assert time.time() * 1000 < due_ms - 1000, "pushing took too long"
    pids = [pid for name, pid in dq.pids().items() if name.startswith("dq-consumer")]
    consumers = [psutil.Process(pid) for pid in pids]
    time.sleep(due_ms / 1000 - time.time() - 0.2)
    cpu_s = _cpu_s(consumers)
    wait_until(lambda: _received(port)[0] >= before[0] + jobs, 120)
    took_s = _received(port)[1] - due_ms / 1000
    time.sleep(0.5)  # the last outcomes are settled
    return Run(jobs / took_s, (_cpu_s(consumers) - cpu_s) * 1e6 / jobs)


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def _received(port: int) -> tuple[int, float]:
    """How many calls have come, and when the last one did (unix time)."""

    async def ask() -> tuple[int, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /count HTTP/1.1\r\n\r\n")
        count, last = (await reader.readline()).split()
        writer.close()
        return int(count), float(last)

    return asyncio.run(ask())


# The receiver


class Receiver(asyncio.Protocol):
    """Answers at once; a request here comes in one piece, or its body follows in the next."""

    count = 0
    last_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET /count"):
            self._transport.write(f"{Receiver.count} {Receiver.last_s}\n".encode())
        elif data.endswith(b"}"):
            Receiver.count += 1
            Receiver.last_s = time.time()
            self._transport.write(OK)


async def _receive(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receiver", port]:
            uvloop.run(_receive(int(port)))
        case ["bare", port, jobs]:
            uvloop.run(_bare(int(port), int(jobs)))
        case ["caller", port, jobs]:
            uvloop.run(_caller(int(port), int(jobs)))
        case _:
            main()
