"""Pushes a second and what they cost, beside a bare application under the same load."""

from __future__ import annotations

from collections.abc import Callable

from dq.bench.children import listening
from dq.bench.figures import Comparison, Pushes, Run, compare
from dq.bench.instance import Instance, Tell
from dq.bench.load import Load, run_load
from dq.bench.machine import cpu_of

CONNECTIONS = 50
MANY_CONNECTIONS = 400
"""What arrives together is synced and applied together: with more of it a push costs less."""

BATCH = 100

Side = Callable[[str], Run]
"""Carries a load through, its ids beginning with the text it is given."""


def measure_pushes(dq: Instance, jobs: int, rounds: int, tell: Tell) -> Pushes:
    """`jobs` a round, dq and the bare application in turns."""
    lost: list[int] = []
    with listening(dq.folder, "dq.bench.bare", "serve") as (pid, port):

        def ours(load: Load) -> Run:
            dq.rest()  # what the round before left to the journal takes no core from this one
            before = dq.cpu_s()["server"]
            answered = run_load(dq.folder, load)
            lost.append(jobs - answered.created)
            return _run(jobs, answered.seconds, dq.cpu_s()["server"] - before)

        def bare(load: Load) -> Run:
            dq.rest()
            before = cpu_of(pid)
            answered = run_load(dq.folder, load)
            return _run(jobs, answered.seconds, cpu_of(pid) - before)

        def versus(name: str, connections: int, each: int) -> Comparison:
            def load(port: int, prefix: str) -> Load:
                return Load(port, jobs, f"{connections}-{each}-{prefix}", connections, each)

            return take_turns(
                lambda prefix: ours(load(dq.port, prefix)),
                lambda prefix: bare(load(port, prefix)),
                rounds,
                lambda text: tell(f"pushes, {name}: {text}"),
            )

        single = versus("single", CONNECTIONS, 1)
        many = versus(f"single, {MANY_CONNECTIONS} connections", MANY_CONNECTIONS, 1)
        batch = versus(f"batches of {BATCH}", CONNECTIONS, BATCH)
    return Pushes(CONNECTIONS, MANY_CONNECTIONS, jobs, single, many, batch, sum(lost))


def take_turns(ours: Side, bare: Side, rounds: int, tell: Tell) -> Comparison:
    """A round to warm up (of several), then `rounds`, the one and the other first in turns:
    whatever else the machine does hits both."""
    runs: dict[Side, list[Run]] = {ours: [], bare: []}
    for number in range(0 if rounds > 1 else 1, rounds + 1):
        for side in (ours, bare) if number % 2 else (bare, ours):
            tell(f"{'dq' if side is ours else 'bare'}, round {number} of {rounds}")
            runs[side].append(side(str(number)))
    return compare(runs[ours][-rounds:], runs[bare][-rounds:])


def _run(jobs: int, seconds: float, cpu_s: float) -> Run:
    return Run(jobs / seconds, cpu_s * 1e6 / jobs)
