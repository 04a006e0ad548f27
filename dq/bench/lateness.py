"""How late callbacks come at a steady rate while jobs are pushed at the same rate; and that none is
early."""

from __future__ import annotations

from dq.bench.figures import Lateness
from dq.bench.instance import Instance, Tell
from dq.bench.load import Load, run_load
from dq.bench.receiver import Receiver

_SPREAD_MS = (500, 4_000)
_CONNECTIONS = 20


def measure_lateness(
    dq: Instance, receiver: Receiver, rate: int, seconds: float, tell: Tell
) -> Lateness:
    """`rate` pushes a second for `seconds`, each due at a random time a little later."""
    jobs = max(1, int(rate * seconds))
    prefix = f"l{rate}"
    dq.rest()
    waiting = dq.node.jobs()
    receiver.take("")
    load = Load(dq.port, jobs, f"{prefix}-", _CONNECTIONS, spread_ms=_SPREAD_MS, rate=rate)
    answered = run_load(
        dq.folder, load, lambda at: tell(f"lateness at {rate:,}/s: {at:.0f} of {seconds:g} s")
    )
    dq.wait_settled(waiting, lambda left: tell(f"lateness: {left:,} jobs to come"))
    arrived = receiver.take(prefix)
    return Lateness(
        rate,
        jobs / answered.seconds,
        jobs,
        arrived.p50_ms,
        arrived.p99_ms,
        arrived.max_ms,
        lost=jobs - min(answered.created, arrived.jobs),
        early=arrived.early,
        repeated=arrived.calls - arrived.jobs,
    )
