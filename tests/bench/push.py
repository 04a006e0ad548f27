"""What accepting a push costs, against a bare aiohttp.web application that stores nothing.

    python -m tests.bench.push [JOBS] [ROUNDS] [CONNECTIONS]

Both run at the same time, the whole dq in a throw-away folder with everything durable; the same
load goes to one and then to the other, round after round, so that whatever else the machine does
hits both. Prints pushes a second, the CPU of the serving process for 1,000 jobs, and the ratios.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from tests.e2e.program import ROOT, Program, free_port
from tests.support import wait_until


class Run(msgspec.Struct):
    """One load on one of them."""

    per_s: float
    cpu_ms: float


class Served(msgspec.Struct):
    """A server under load."""

    name: str
    port: int
    process: psutil.Process


def main() -> None:
    words = [int(word) for word in sys.argv[1:]]
    jobs, rounds, connections = words + [20_000, 5, 50][len(words) :]
    with (
        tempfile.TemporaryDirectory(prefix="dq-bench-") as name,
        _bare() as bare,
        Program(Path(name)) as dq,
    ):
        dq.topic("bench", callback="http://127.0.0.1:9/")
        ours = Served("dq", dq.api_port, psutil.Process(dq.pids()["dq-server-0"]))
        _compare("single pushes", ours, bare, rounds, (connections, jobs, 1))
        _compare("batches of 100", ours, bare, rounds, (connections, jobs, 100))


@contextmanager
def _bare() -> Iterator[Served]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.bare", str(port)], cwd=ROOT)
    try:
        here = psutil.Process(process.pid)
        wait_until(lambda: any(one.laddr.port == port for one in here.net_connections()), 20)
        yield Served("bare aiohttp.web", port, here)
    finally:
        process.terminate()
        process.wait()


def _compare(
    what: str, ours: Served, bare: Served, rounds: int, shape: tuple[int, int, int]
) -> None:
    print(f"\n{what}, {shape[0]} connections, {shape[1]} jobs a run", flush=True)
    runs: dict[str, list[Run]] = {ours.name: [], bare.name: []}
    for number in range(-1, rounds):
        for served in (ours, bare) if number % 2 else (bare, ours):
            run = _load(served, shape, f"{what[0]}{number}")
            if number >= 0:  # the first one warms up
                runs[served.name].append(run)
                print(f"  {served.name:17}{run.per_s:9,.0f}/s {run.cpu_ms:7.1f} ms", flush=True)
    pairs = list(zip(runs[ours.name], runs[bare.name], strict=True))
    rates = [mine.per_s / other.per_s for mine, other in pairs]
    costs = [other.cpu_ms / mine.cpu_ms for mine, other in pairs]
    for name, some in runs.items():
        per_s = statistics.median(run.per_s for run in some)
        cpu_ms = statistics.median(run.cpu_ms for run in some)
        print(f"{name}: {per_s:,.0f} jobs/s, {cpu_ms:.1f} ms of CPU for 1,000 (medians)")
    print(f"ratio by rate {_spread(rates)}, by CPU {_spread(costs)}", flush=True)


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _load(served: Served, shape: tuple[int, int, int], prefix: str) -> Run:
    connections, jobs, each = shape
    before = served.process.cpu_times()
    words = [str(served.port), str(connections), str(jobs), str(each), prefix]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.load", *words],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    after = served.process.cpu_times()
    answer = json.loads(done.stdout)
    wrong = {status for status in answer["statuses"] if not status.startswith("20")}
    assert not wrong, f"{served.name} answered {answer['statuses']}"
    cpu_s = after.user + after.system - before.user - before.system
    return Run(jobs / answer["seconds"], cpu_s * 1e6 / jobs)


if __name__ == "__main__":
    main()
