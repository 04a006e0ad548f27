"""What a job costs while many others wait: growth is what a queue must not have much of."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dq.bench.callbacks import run_backlog
from dq.bench.figures import Waiting
from dq.bench.instance import Instance, Tell
from dq.bench.load import Load, run_load
from dq.bench.memory import push_waiting
from dq.bench.receiver import Receiver
from dq.core.clock import mono_ms, now_ms

_SHIPPED_S = 1_800.0
_HANDED_OVER = 20
_FIRST_MINUTE_S = 62.0
"""For a minute after it was begun a bucket remembers what is finished (lua/README.md, Floors)."""


def measure_waiting(
    dq: Instance, receiver: Receiver, levels: Sequence[int], shape: tuple[int, int], tell: Tell
) -> list[Waiting]:
    """At each of `levels` waiting jobs, lowest first: `shape` is jobs and rounds of a backlog. One
    to warm up comes first, where there are several rounds."""
    if shape[1] > 1:
        run_backlog(dq, receiver, shape[0], "w", lambda text: tell(f"waiting, warm-up: {text}"))
        tell("waiting for the first minute to pass")
        dq.wait_old(_FIRST_MINUTE_S)
    return [_measure_at(dq, receiver, level, shape, tell) for level in sorted(levels)]


def _measure_at(
    dq: Instance, receiver: Receiver, level: int, shape: tuple[int, int], tell: Tell
) -> Waiting:
    def say(text: str) -> None:
        tell(f"{level:,} waiting: {text}")

    jobs, rounds = shape
    lost = push_waiting(dq, max(0, level - dq.node.jobs()), f"w{level}", say)
    dq.rest(_SHIPPED_S)
    some = [run_backlog(dq, receiver, jobs, f"w{level}-{n}", say) for n in range(rounds)]
    hand_over_s = _time_hand_over(dq, f"h{level}", say)
    say("starting again")
    start_s = dq.restart()
    return Waiting(
        dq.node.jobs(),
        server_push_ms=statistics.median(one.push_cpu_ms["server"] for one in some),
        valkey_push_ms=statistics.median(one.push_cpu_ms["valkey"] for one in some),
        valkey_delivery_ms=statistics.median(one.callback_cpu_ms["valkey"] for one in some),
        hand_over_s=hand_over_s,
        start_s=start_s,
        lost=lost + sum(one.lost for one in some),
        early=sum(one.early for one in some),
    )


def _time_hand_over(dq: Instance, prefix: str, tell: Tell) -> float:
    """Seconds from the timer's death until jobs pushed after it, due at once, are settled."""
    waiting, began_ms = dq.node.jobs(), mono_ms()
    dq.kill("timer")
    run_load(dq.folder, Load(dq.port, _HANDED_OVER, f"{prefix}-", due_ms=now_ms()))
    dq.wait_settled(waiting, lambda left: tell(f"timer killed, {left} jobs to be called"))
    took_s = (mono_ms() - began_ms) / 1000
    dq.see_processes()
    return took_s
