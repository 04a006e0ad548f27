"""The figures of a bench, and the little arithmetic on them. Pure.

CPU is in milliseconds for 1,000 jobs throughout: the kernel's user and system time of processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

Cpu = dict[str, float]
"""By kind of process: server, timer, consumer, journal, checker, admin, master, valkey."""


class Run(msgspec.Struct, frozen=True):
    """One load on one side: jobs a second, CPU of the process under test for 1,000 of them."""

    per_s: float
    cpu_ms: float


class Spread(msgspec.Struct, frozen=True):
    """A figure of several rounds."""

    median: float
    lowest: float
    highest: float


class Comparison(msgspec.Struct, frozen=True):
    """dq beside something bare, round by round: `rate_ratio` is how many times as many jobs a
    second dq does, `cpu_ratio` how many times as much CPU the bare one takes for them."""

    dq: Run
    bare: Run
    rate_ratio: Spread
    cpu_ratio: Spread
    rounds: int


class Pushes(msgspec.Struct, frozen=True):
    """`single` over `connections`, `single_of_many` over `many_connections`. `lost`: jobs that were
    not answered as created."""

    connections: int
    many_connections: int
    jobs: int
    single: Comparison
    single_of_many: Comparison
    batch: Comparison
    lost: int


class Callbacks(msgspec.Struct, frozen=True):
    """`life_cpu_ms`: CPU of everything from the push of a job until its history is in SQL; of jobs
    that were pushed one by one, and of those that came in batches."""

    jobs: int
    versus: Comparison
    life_cpu_ms: Cpu
    life_cpu_all_ms: float
    life_of_batches_cpu_ms: Cpu
    life_of_batches_cpu_all_ms: float
    lost: int
    early: int
    repeated: int


class Lateness(msgspec.Struct, frozen=True):
    """From the due time until the receiver has the request. `pushed_per_s`: the rate at which the
    pushes were answered, below `rate` when the machine can't keep it up."""

    rate: int
    pushed_per_s: float
    jobs: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    lost: int
    early: int
    repeated: int


class Memory(msgspec.Struct, frozen=True):
    jobs: int
    body_bytes: int
    bytes_a_job: float
    lost: int


class Idle(msgspec.Struct, frozen=True):
    """In percent of one core."""

    seconds: float
    percent: Cpu
    percent_all: float


class Waiting(msgspec.Struct, frozen=True):
    """What a job costs while `waiting` others wait. Delivery is forward, lease and ack.

    `hand_over_s`: from kill -9 of the timer until jobs that are due have been called back.
    `start_s`: of the whole dq, until it runs, Valkey's reading of its file included.
    """

    waiting: int
    server_push_ms: float
    valkey_push_ms: float
    valkey_delivery_ms: float
    hand_over_s: float
    start_s: float
    lost: int
    early: int


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all are not above; 0 when there is none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float]) -> Spread:
    """Raises statistics.StatisticsError when there is none."""
    return Spread(statistics.median(values), min(values), max(values))


def median_run(runs: Sequence[Run]) -> Run:
    return Run(
        statistics.median(run.per_s for run in runs), statistics.median(run.cpu_ms for run in runs)
    )


def compare(ours: Sequence[Run], bare: Sequence[Run]) -> Comparison:
    """Both sides' runs, in the order of the rounds."""
    pairs = list(zip(ours, bare, strict=True))
    return Comparison(
        median_run(ours),
        median_run(bare),
        spread([_ratio(mine.per_s, other.per_s) for mine, other in pairs]),
        spread([_ratio(other.cpu_ms, mine.cpu_ms) for mine, other in pairs]),
        len(pairs),
    )


def _ratio(upper: float, lower: float) -> float:
    """The kernel counts CPU in ticks: a short run may have none of it."""
    return upper / lower if lower else 0.0


def cpu_between(before: Mapping[str, float], after: Mapping[str, float]) -> Cpu:
    """CPU-seconds by kind."""
    return {kind: after[kind] - before[kind] for kind in after}


def per_thousand(cpu_s: Mapping[str, float], jobs: int) -> Cpu:
    """Milliseconds for 1,000 jobs, from seconds for `jobs`."""
    return {kind: seconds * 1e6 / jobs for kind, seconds in cpu_s.items()}


def sum_cpus(cpus: Iterable[Mapping[str, float]]) -> Cpu:
    total: Cpu = {}
    for cpu in cpus:
        for kind, value in cpu.items():
            total[kind] = total.get(kind, 0.0) + value
    return total


def median_cpu(cpus: Sequence[Cpu]) -> Cpu:
    return {kind: statistics.median(cpu[kind] for cpu in cpus) for kind in cpus[0]}
