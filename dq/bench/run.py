"""Everything that `dq bench` measures, on one instance, in an order in which nothing that a part
leaves behind (waiting jobs, a full journal) is in the way of the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dq.bench.callbacks import measure_callbacks
from dq.bench.children import listening
from dq.bench.figures import Callbacks, Idle, Lateness, Memory, Pushes, Waiting
from dq.bench.idle import measure_idle
from dq.bench.instance import Instance, Tell
from dq.bench.lateness import measure_lateness
from dq.bench.machine import Machine, look_at_machine
from dq.bench.memory import measure_memory
from dq.bench.pushes import measure_pushes
from dq.bench.receiver import Receiver
from dq.bench.waiting import measure_waiting

PARTS = ("pushes", "callbacks", "lateness", "memory", "idle")
WAITING = "waiting"
ALL_PARTS = (*PARTS, WAITING)


class Plan(msgspec.Struct, frozen=True):
    """How much of each is measured. Rates are jobs a second; `levels` are waiting jobs."""

    parts: tuple[str, ...] = PARTS
    jobs: int = 20_000
    rounds: int = 3
    rates: tuple[int, ...] = (200, 2_000)
    lateness_s: float = 15.0
    memory_jobs: int = 100_000
    idle_s: float = 20.0
    levels: tuple[int, ...] = (1_000, 1_000_000)


QUICK = Plan(
    jobs=1_000,
    rounds=1,
    rates=(200,),
    lateness_s=1.0,
    memory_jobs=2_000,
    idle_s=1.0,
    levels=(500, 1_500),
)


class Result(msgspec.Struct):
    """What was asked for; None is what was not. `wrong`: what must not be, in words."""

    machine: Machine
    pushes: Pushes | None = None
    callbacks: Callbacks | None = None
    lateness: list[Lateness] | None = None
    memory: Memory | None = None
    idle: Idle | None = None
    waiting: list[Waiting] | None = None
    wrong: list[str] = []


def measure(folder: Path, plan: Plan, tell: Tell) -> Result:
    """Run the plan in `folder`, an empty one. Raises BenchFailed."""
    load = os.getloadavg()[0]
    tell("starting dq")
    with _receiver(folder) as receiver, Instance(folder) as dq:
        dq.make_topic(receiver.url)
        result = Result(look_at_machine(folder, dq.node.version(), round(load, 2)))
        for part, measure_part in _MEASURES.items():
            if part in plan.parts:
                measure_part(result, dq, receiver, plan, tell)
        tell("stopping dq")
    result.wrong = what_is_wrong(result)
    return result


@contextmanager
def _receiver(folder: Path) -> Iterator[Receiver]:
    with listening(folder, "dq.bench.receiver") as (_, port):
        yield Receiver(port)


_Measure = Callable[[Result, Instance, Receiver, Plan, Tell], None]


def _idle(result: Result, dq: Instance, _: Receiver, plan: Plan, tell: Tell) -> None:
    result.idle = measure_idle(dq, plan.idle_s, tell)


def _lateness(result: Result, dq: Instance, receiver: Receiver, plan: Plan, tell: Tell) -> None:
    result.lateness = [
        measure_lateness(dq, receiver, rate, plan.lateness_s, tell) for rate in plan.rates
    ]


def _callbacks(result: Result, dq: Instance, receiver: Receiver, plan: Plan, tell: Tell) -> None:
    result.callbacks = measure_callbacks(dq, receiver, plan.jobs, plan.rounds, tell)


def _memory(result: Result, dq: Instance, _: Receiver, plan: Plan, tell: Tell) -> None:
    result.memory = measure_memory(dq, plan.memory_jobs, tell)


def _waiting(result: Result, dq: Instance, receiver: Receiver, plan: Plan, tell: Tell) -> None:
    shape = (plan.jobs, plan.rounds)
    result.waiting = measure_waiting(dq, receiver, plan.levels, shape, tell)


def _pushes(result: Result, dq: Instance, _: Receiver, plan: Plan, tell: Tell) -> None:
    result.pushes = measure_pushes(dq, plan.jobs, plan.rounds, tell)


_MEASURES: dict[str, _Measure] = {
    "idle": _idle,
    "lateness": _lateness,
    "callbacks": _callbacks,
    WAITING: _waiting,
    "memory": _memory,
    "pushes": _pushes,
}


def what_is_wrong(result: Result) -> list[str]:
    """Jobs that were lost, or called back early, in a sentence for each part."""
    parts: list[tuple[str, int, int]] = []
    if result.pushes is not None:
        parts.append(("pushes", result.pushes.lost, 0))
    if result.callbacks is not None:
        parts.append(("callbacks", result.callbacks.lost, result.callbacks.early))
    for late in result.lateness or []:
        parts.append((f"lateness at {late.rate:,}/s", late.lost, late.early))
    if result.memory is not None:
        parts.append(("memory", result.memory.lost, 0))
    for some in result.waiting or []:
        parts.append((f"{some.waiting:,} waiting", some.lost, some.early))
    lost = [f"{name}: {count:,} jobs lost" for name, count, _ in parts if count]
    return lost + [f"{name}: {count:,} callbacks early" for name, _, count in parts if count]
