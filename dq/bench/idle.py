"""What dq costs while there is nothing to do."""

from __future__ import annotations

import time

from dq.bench.figures import Idle, cpu_between
from dq.bench.instance import Instance, Tell
from dq.core.clock import mono_ms


def measure_idle(dq: Instance, seconds: float, tell: Tell) -> Idle:
    """The CPU of all its processes over `seconds`."""
    dq.rest()
    began_ms, before = mono_ms(), dq.cpu_s()
    while (left_s := seconds - (mono_ms() - began_ms) / 1000) > 0:
        tell(f"idle: {left_s:.0f} s to go")
        time.sleep(min(1.0, left_s))
    used, took_s = cpu_between(before, dq.cpu_s()), (mono_ms() - began_ms) / 1000
    percent = {kind: cpu_s / took_s * 100 for kind, cpu_s in used.items()}
    return Idle(took_s, percent, sum(percent.values()))
