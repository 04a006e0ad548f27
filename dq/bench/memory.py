"""Bytes of Valkey's memory that a waiting job takes."""

from __future__ import annotations

from dq.bench.figures import Memory
from dq.bench.instance import Instance, Tell
from dq.bench.load import BODY_BYTES, Load, run_load
from dq.bench.pushes import BATCH

_STEP = 50_000


def measure_memory(dq: Instance, jobs: int, tell: Tell) -> Memory:
    """The node's used_memory before and after `jobs` were pushed."""
    dq.rest()
    before = dq.node.used_memory()
    lost = push_waiting(dq, jobs, "m", lambda text: tell(f"memory: {text}"))
    dq.rest()
    used = dq.node.used_memory() - before
    return Memory(jobs, BODY_BYTES, used / jobs, lost)


def push_waiting(dq: Instance, jobs: int, prefix: str, tell: Tell) -> int:
    """Push `jobs` that wait for a day; answers how many of them are not there."""
    waiting = dq.node.jobs()
    for done in range(0, jobs, _STEP):
        tell(f"{done:,} of {jobs:,} jobs pushed")
        step = min(_STEP, jobs - done)
        run_load(dq.folder, Load(dq.port, step, f"{prefix}-{done}", connections=8, each=BATCH))
    return jobs - (dq.node.jobs() - waiting)
