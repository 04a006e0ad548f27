"""The kinds of worker: what each is called, how many there are, in which order they leave.

A role is a module with `async def run(ctx: Context) -> None`, named by its path and imported in
the worker only, so that the master stays free of asyncio, Redis and SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dq.core.settings import Settings

CONSUMER = "consumer"  # the kind that TTIN and TTOU add and remove
_CONSUMER_PATIENCE_S = 610.0  # the longest timeout of a topic, and time to settle the last one


def _one(_: Settings) -> int:
    return 1


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of worker.

    `sockets`: the listening sockets it is given, by name. `stage`: at a stop, roles leave stage
    by stage. `patience_s`: how long after TERM it is killed. `overlaps`: at a reload the new one
    may start before the old one has left.
    """

    title: str
    module: str
    count: Callable[[Settings], int] = _one
    numbered: bool = False
    sockets: tuple[str, ...] = ()
    stage: int = 0
    patience_s: float = 15.0
    overlaps: bool = True

    def process_name(self, index: int) -> str:
        return f"dq-{self.title}-{index}" if self.numbered else f"dq-{self.title}"


# Who takes work leaves first, who writes down what the others did last; Valkey after all of them.
ROLES: dict[str, Role] = {
    role.title: role
    for role in (
        Role(
            "server",
            "dq.workers.server",
            lambda settings: settings.servers,
            numbered=True,
            sockets=("api", "tcp"),
        ),
        Role("admin", "dq.workers.admin", sockets=("admin",)),
        Role(
            "timer",
            "dq.workers.timer",
            lambda settings: settings.timers,
            numbered=True,
            stage=1,
        ),
        Role(
            CONSUMER,
            "dq.workers.consumer",
            lambda settings: settings.consumers,
            numbered=True,
            stage=1,
            patience_s=_CONSUMER_PATIENCE_S,
        ),
        Role("redis-checker", "dq.workers.checker", stage=2),
        Role("journal", "dq.workers.journal", stage=3, patience_s=60.0, overlaps=False),
    )
}
