"""Callbacks a second out of a backlog, and what a job costs for its whole life.

The whole life is pushed to shipped: the CPU of every process from the first push until all is at
rest, then from the due time until all is at rest again; the quiet time between is left out.
"""

from __future__ import annotations

import time

import msgspec

from dq.bench.children import answer_of
from dq.bench.errors import BenchFailed
from dq.bench.figures import (
    Callbacks,
    Cpu,
    Run,
    cpu_between,
    median_cpu,
    per_thousand,
    sum_cpus,
)
from dq.bench.instance import Instance, Tell
from dq.bench.load import Load, run_load
from dq.bench.pushes import BATCH, CONNECTIONS, take_turns
from dq.bench.receiver import Arrived, Receiver
from dq.core.clock import now_ms

_AHEAD_S = 2.0
_SLOWEST_PUSHES = 2_500  # a second; what is slower gets more time and is begun anew
_MOST_AHEAD_S = 600.0
_NEAR_S = 0.3


class Backlog(msgspec.Struct, frozen=True):
    """What became of jobs that were due at the same moment. CPU is for 1,000 jobs: of the pushes,
    of the callbacks until the last was settled, and of the whole life."""

    run: Run
    push_cpu_ms: Cpu
    callback_cpu_ms: Cpu
    life_cpu_ms: Cpu
    lost: int
    early: int
    repeated: int


def measure_callbacks(
    dq: Instance, receiver: Receiver, jobs: int, rounds: int, tell: Tell
) -> Callbacks:
    """`jobs` a round, dq and the bare client in turns."""
    backlogs: list[Backlog] = []

    def say(text: str) -> None:
        tell(f"callbacks: {text}")

    def ours(prefix: str) -> Run:
        backlogs.append(run_backlog(dq, receiver, jobs, f"c{prefix}", say))
        return backlogs[-1].run

    def bare(_: str) -> Run:
        dq.rest()
        words = ("call", receiver.url, str(jobs))
        run = msgspec.json.decode(answer_of(dq.folder, "dq.bench.bare", *words), type=Run)
        receiver.take("")
        return run

    versus = take_turns(ours, bare, rounds, say)
    life = median_cpu([one.life_cpu_ms for one in backlogs[-rounds:]])
    batches = [run_backlog(dq, receiver, jobs, f"b{n}", say, BATCH) for n in range(rounds)]
    life_of_batches = median_cpu([one.life_cpu_ms for one in batches])
    backlogs += batches
    return Callbacks(
        jobs,
        versus,
        life,
        sum(life.values()),
        life_of_batches,
        sum(life_of_batches.values()),
        lost=sum(one.lost for one in backlogs),
        early=sum(one.early for one in backlogs),
        repeated=sum(one.repeated for one in backlogs),
    )


def run_backlog(
    dq: Instance, receiver: Receiver, jobs: int, prefix: str, tell: Tell, each: int = 1
) -> Backlog:
    """Push `jobs`, `each` a request, all due at one moment in the future; let them be called back.

    Jobs whose pushes were not over in time are called back, too, and done again, due later.
    """
    ahead_s = _AHEAD_S + jobs / _SLOWEST_PUSHES
    while ahead_s <= _MOST_AHEAD_S:
        shape = (jobs, each, f"{prefix}-{ahead_s:g}", ahead_s)
        backlog = _try_backlog(dq, receiver, shape, tell)
        if backlog is not None:
            return backlog
        ahead_s *= 2
    raise BenchFailed(f"{jobs:,} jobs can't be pushed within {_MOST_AHEAD_S:g} s")


def _try_backlog(
    dq: Instance, receiver: Receiver, shape: tuple[int, int, str, float], tell: Tell
) -> Backlog | None:
    """None when the due time came before all had been pushed and written down."""
    jobs, each, prefix, ahead_s = shape
    dq.rest()
    waiting = dq.node.jobs()
    receiver.take("")
    began, due_ms = dq.cpu_s(), now_ms() + int(ahead_s * 1000)
    tell(f"pushing {jobs:,} jobs")
    load = Load(dq.port, jobs, f"{prefix}-", CONNECTIONS, each, due_ms)
    answered = run_load(dq.folder, load)
    pushed = dq.cpu_s()
    is_in_time = dq.wait_quiet((due_ms - now_ms()) / 1000 - _NEAR_S)
    written = dq.cpu_s()
    if is_in_time:
        time.sleep(max(0.0, (due_ms - now_ms()) / 1000 - _NEAR_S))
    due = dq.cpu_s()
    dq.wait_settled(waiting, lambda left: tell(f"{jobs - left:,} of {jobs:,} called back"))
    settled = dq.cpu_s()
    dq.rest()
    shipped = dq.cpu_s()
    arrived = receiver.take(prefix)
    if not is_in_time and answered.created == arrived.jobs == jobs and not arrived.early:
        return None
    callbacks = cpu_between(due, settled)
    life = sum_cpus([cpu_between(began, written), cpu_between(due, shipped)])
    return Backlog(
        _run(jobs, due_ms, arrived, callbacks["consumer"]),
        per_thousand(cpu_between(began, pushed), jobs),
        per_thousand(callbacks, jobs),
        per_thousand(life, jobs),
        lost=jobs - min(answered.created, arrived.jobs),
        early=arrived.early,
        repeated=arrived.calls - arrived.jobs,
    )


def _run(jobs: int, due_ms: int, arrived: Arrived, cpu_s: float) -> Run:
    took_s = max(arrived.last_us / 1e6 - due_ms / 1000, 0.001)
    return Run(jobs / took_s, cpu_s * 1e6 / jobs)
