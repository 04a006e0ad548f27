"""dq-consumer: leases ready jobs, calls them back, settles what came of it.

As many callbacks are in flight as DQ_CONCURRENCY allows (room.py). They are leased in batches of
what is free (leasing.py), and each is in hand from then until its outcome counts (hand.py).
"""

from __future__ import annotations

import asyncio
import gc
import logging

from dq.core import clock
from dq.core.pace import next_turn
from dq.core.settings import Settings
from dq.db.topic_book import TopicBook
from dq.delivery.attempt import Attempts
from dq.delivery.http import Caller
from dq.log.neighbours import Neighbours
from dq.workers.base import Context
from dq.workers.hand import Hand
from dq.workers.leasing import Leasing
from dq.workers.outfit import Outfit, open_outfit, work_until_stopping
from dq.workers.room import Room

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often topics and neighbours are looked at: a stat and a listing."""
GC_EACH = 20_000
"""Objects made before young garbage is looked for. A callback in flight is some dozens of them;
with Python's 700 the collector was seen in a seventh of the samples of a busy consumer."""


class Consumer:
    """One consumer over all buckets."""

    def __init__(self, name: str, settings: Settings, outfit: Outfit, topics: TopicBook) -> None:
        self._topics = topics
        self._caller = Caller(settings.callback_deny, limit=settings.concurrency)
        self._neighbours = Neighbours(settings.data_dir / "log")
        room = Room(settings.concurrency)
        attempts = Attempts(self._caller, settings.retry_unit_s, name)
        self._hand = Hand(attempts, outfit.writer, outfit.store, room)
        self._leasing = Leasing(outfit, topics, self._neighbours, room, self._hand)

    async def run(self) -> None:
        """Until cancelled; callbacks under way go on, see `drain`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_forever())
            tasks.create_task(self._leasing.run())

    async def drain(self) -> None:
        """Wait for the callbacks under way and what they settle."""
        await self._hand.drain()
        await self._caller.close()

    async def _look_forever(self) -> None:
        while True:
            if self._topics.refresh():
                self._leasing.see_topics()
            self._neighbours.look()
            await next_turn(LOOK_S)


async def run(ctx: Context) -> None:
    """The child's work."""
    gc.set_threshold(GC_EACH)
    outfit = await open_outfit(ctx, lazy=True, answer_within_ms=None)
    topics = TopicBook(ctx.settings.data_dir / "topics.json", None)
    topics.refresh()
    consumer = Consumer(ctx.name, ctx.settings, outfit, topics)
    ctx.ready()
    await work_until_stopping(ctx, consumer.run())
    began_ms = clock.mono_ms()
    await consumer.drain()
    _log.info("stopped after %.1f s", (clock.mono_ms() - began_ms) / 1000)
    await outfit.close()
