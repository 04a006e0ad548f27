"""dq-timer: makes due jobs ready, at their time and not before.

A node's clock that jumps forward is not followed at once (dq/queue/steady.py).
It sleeps exactly until the next due time that `forward` answered, and is woken when a push brings
an earlier one. Several timers on one bucket do no harm: the script moves each job once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing

from dq.core.errors import NodeAway
from dq.core.faults import reach
from dq.core.pace import next_turn
from dq.queue.bell import WAKE, Bell
from dq.queue.nodes import Bucket, Nodes
from dq.queue.steady import SteadyClock
from dq.queue.store import FORWARD_MOST, Store
from dq.workers.alarm_clock import AlarmClock
from dq.workers.base import Context
from dq.workers.outfit import open_nodes, work_until_stopping

_log = logging.getLogger(__name__)

ARM_S = 5.0
LONGEST_SLEEP_S = 1.0
"""For a token that got lost, and a clock of a node that was set."""


class Timer:
    """One timer over all buckets."""

    def __init__(self, nodes: Nodes, store: Store) -> None:
        self._nodes = nodes
        self._store = store
        self._clocks = {node.name: SteadyClock(node.name) for node in nodes.all}
        self._woken = {bucket.index: asyncio.Event() for bucket in nodes.buckets}

    async def run(self) -> None:
        """Until cancelled."""
        bell = Bell(self._nodes.all, WAKE, self._ring, arm_s=ARM_S)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bell.listen())
            tasks.create_task(self._wake_each_turn())
            for bucket in self._nodes.buckets:
                tasks.create_task(self._serve(bucket))

    def _ring(self, bucket: Bucket | None) -> None:
        if bucket is not None:
            self._woken[bucket.index].set()

    async def _wake_each_turn(self) -> None:
        while True:
            await next_turn(LONGEST_SLEEP_S)
            for woken in self._woken.values():
                woken.set()

    async def _serve(self, bucket: Bucket) -> None:
        woken = self._woken[bucket.index]
        with closing(AlarmClock(woken)) as alarm:
            while True:
                woken.clear()
                sleep_s = await self.tick(bucket)
                if sleep_s > 0:
                    if sleep_s < LONGEST_SLEEP_S:
                        alarm.set(sleep_s)
                    await woken.wait()

    async def tick(self, bucket: Bucket, now_ms: int | None = None) -> float:
        """One pass over a bucket; the seconds to sleep until the next, LONGEST_SLEEP_S and more:
        until woken."""
        try:
            reach("forward.before")
            steady = self._clocks[bucket.node.name]
            moved, next_ms = await self._store.forward(bucket, now_ms, steady=steady)
        except NodeAway as error:
            _log.debug("%s: %s", bucket.name, error.detail)
            return 0.1
        if moved:
            reach("forward.after")
        if moved >= FORWARD_MOST:
            return 0
        return LONGEST_SLEEP_S if next_ms < 0 else next_ms / 1000


async def run(ctx: Context) -> None:
    """The child's work."""
    nodes = await open_nodes(ctx.settings)
    ctx.ready()
    await work_until_stopping(ctx, Timer(nodes, Store()).run())
    await nodes.close()
