"""The slots for callbacks of one consumer: how many are free, and which topic has the others.

A slot is free again when its callback has ended. Where there are several topics none may take them
all: what it may never have is left for the others, so that an endpoint that hangs holds up only its
own jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from dq.queue.store import LEASE_MOST

_GATHER_S = 0.005
_GATHERS = 2


class Room:
    """`most` callbacks at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.free = most
        self.reserve = 0
        """What one topic alone never gets."""
        self._enough = min(most // 4, LEASE_MOST)
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._taken: Counter[str] = Counter()

    def see_topics(self, count: int) -> None:
        """So many topics are registered."""
        self.reserve = self.most // 5 if count > 1 else 0

    def take(self, topic: str) -> None:
        """A callback of the topic begins."""
        self._taken[topic] += 1
        self.free -= 1
        if self.free <= 0:
            self._is_free.clear()

    def release(self, topic: str) -> None:
        """It has ended."""
        self.free += 1
        self._is_free.set()
        self._taken[topic] -= 1
        if not self._taken[topic]:
            del self._taken[topic]

    def full_topics(self) -> list[str]:
        """Those with as many callbacks in flight as one may have."""
        share = self.most - self.reserve
        return [topic for topic, taken in self._taken.items() if taken >= share]

    async def wait(self) -> None:
        """Until a slot is free."""
        await self._is_free.wait()

    async def gather(self) -> None:
        """Under a backlog: a moment for more slots to become free, as one call that leases many
        costs little more than one that leases one."""
        for _ in range(_GATHERS):
            if self.free >= self._enough:
                return
            await asyncio.sleep(_GATHER_S)
