"""How a consumer gets its jobs: leases in batches of what is free, by a loop for each node, so that
one that does not answer holds up only its own jobs.

A consumer without room leaves the tokens of the bell to others. Invariants: a job is called only
under a lease; a bucket that has lost something hands nothing out before it was told what is in hand
here.
"""

from __future__ import annotations

import asyncio
import logging

from dq.core.errors import NodeAway
from dq.core.faults import reach
from dq.core.topic import Topic
from dq.db.topic_book import TopicBook
from dq.log.neighbours import Neighbours
from dq.queue.bell import WORK, Bell, put_back
from dq.queue.nodes import Bucket, Node
from dq.queue.records import StoredJob, digest_of
from dq.queue.store import LEASE_MOST, Leased
from dq.workers.hand import Hand
from dq.workers.outfit import Outfit
from dq.workers.room import Room

_log = logging.getLogger(__name__)

UNSURE_S = 0.05
"""After a power cut: from one look at what the heir has done to the next."""

LOOK_EACH = 10
"""Of so many times that a consumer at rest is woken for nothing it asks all buckets once."""


class Leasing:
    """One consumer's leases, over all buckets."""

    def __init__(
        self, outfit: Outfit, topics: TopicBook, neighbours: Neighbours, room: Room, hand: Hand
    ) -> None:
        self._outfit = outfit
        self._topics = topics
        self._neighbours = neighbours
        self._room = room
        self._hand = hand
        self._asked_for = 0
        self._to_look_at = {node: set(node.buckets) for node in outfit.nodes.all}
        self._has_news = {node: asyncio.Event() for node in outfit.nodes.all}
        self._rests = -1
        self._unknown: set[str] = set()
        self._limits_told: dict[int, tuple[int, bytes]] = {}
        self._next_token = 1
        self._last_token: dict[tuple[int, bytes], int] = {}
        room.see_topics(len(topics.all()))

    async def run(self) -> None:
        """Until cancelled."""
        nodes = self._outfit.nodes.all
        bell = Bell(nodes, WORK, self.ring, self._room.wait, is_resting=self._is_resting)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bell.listen())
            for node in nodes:
                tasks.create_task(self._lease_forever(node))

    def see_topics(self) -> None:
        """The topics have changed."""
        self._room.see_topics(len(self._topics.all()))
        self._unknown.clear()
        self.ring(None)

    def ring(self, bucket: Bucket | None) -> None:
        """There may be something in a bucket, or in any."""
        if bucket is not None and self._room.free <= 0:
            self._hand.keep(put_back(bucket, WORK))
            return
        for one in self._outfit.nodes.buckets if bucket is None else [bucket]:
            self._to_look_at[one.node].add(one)
            self._has_news[one.node].set()

    def _is_resting(self) -> bool:
        """Who has nothing in hand has nothing to say to a bucket that has lost something, and asks
        only where something is ready; everywhere once in a while, to be known there again."""
        self._rests = (self._rests + 1) % LOOK_EACH if self._hand.is_empty else 0
        return self._rests > 0

    def _come_back(self, bucket: Bucket, after_s: float) -> None:
        asyncio.get_running_loop().call_later(after_s, self.ring, bucket)

    async def _lease_forever(self, node: Node) -> None:
        has_news = self._has_news[node]
        while True:
            await has_news.wait()
            await self._room.wait()
            has_news.clear()
            looked_at, self._to_look_at[node] = self._to_look_at[node], set()
            for bucket in sorted(looked_at, key=lambda bucket: bucket.number):
                if self._room.free <= 0 or await self._lease(bucket):
                    self._to_look_at[node].add(bucket)
            if self._to_look_at[node]:
                has_news.set()
                await self._room.gather()

    async def _lease(self, bucket: Bucket) -> bool:
        """Lease from one bucket what there is room for; whether more may be there."""
        if not self._neighbours.is_sure(bucket.name):
            self._come_back(bucket, UNSURE_S)
            return False
        want = self._share_of_room()
        first = self._next_token
        self._next_token += want
        self._asked_for += want
        try:
            await self._tell_limits(bucket)
            leased = await self._outfit.store.lease(
                bucket,
                self._outfit.writer.name,
                first,
                want,
                last_token=self._last_token.get((bucket.index, bucket.epoch), 0),
                passed_over=[*self._unknown, *self._room.full_topics()],
                high=self._neighbours.high_of(bucket.name),
            )
            return await self._take(bucket, leased, want)
        except NodeAway as error:
            _log.debug("%s: %s", bucket.name, error.detail)
            return False
        finally:
            self._asked_for -= want

    def _share_of_room(self) -> int:
        """What may be asked of one node while others are asked too: not all, as it may not answer,
        and as it may all be of one topic; at least one, so a few more than DQ_CONCURRENCY may run
        when nearly all slots are taken."""
        left = self._room.free - self._asked_for
        if left > self._room.reserve:
            left -= self._room.reserve
        return min(max(1, left // len(self._outfit.nodes.all)), LEASE_MOST)

    async def _take(self, bucket: Bucket, leased: Leased, want: int) -> bool:
        if leased.state == "EPOCH":
            bucket.epoch = leased.epoch
            return bool(leased.epoch)
        if leased.state != "OK":
            await self._reassert(bucket)
            self._come_back(bucket, max(leased.wait_ms, 50) / 1000)
            return False
        if leased.wait_ms >= 0:
            self._come_back(bucket, leased.wait_ms / 1000)
        if leased.jobs:
            reach("lease.taken")
            last = int.from_bytes(leased.jobs[-1][0][8:], "big")
            self._last_token[bucket.index, bucket.epoch] = last
            await self._hand_over(bucket, leased)
        return len(leased.jobs) >= want

    async def _hand_over(self, bucket: Bucket, leased: Leased) -> None:
        """To be called back, but for what is of a topic that is not known here."""
        known: list[tuple[bytes, StoredJob, Topic]] = []
        returned: list[tuple[bytes, bytes]] = []
        for token, job in leased.jobs:
            topic = self._topics.get(job.topic)
            if topic is not None and topic.callback is not None:
                known.append((token, job, topic))
            elif not self._hand.lease_anew(job, token):
                self._unknown.add(job.topic)
                returned.append((digest_of(job.topic, job.id), token))
        self._hand.take(bucket, known, leased.now_ms)
        await self._hand.adjust(bucket, returned=returned)

    async def _reassert(self, bucket: Bucket) -> None:
        """The bucket has lost something, perhaps our leases too: say what is in hand here, or it
        would be handed out again."""
        mine = self._hand.of(bucket)
        leases = [(one.job, one.token, one.until_ms) for one in mine]
        place = (bucket.index, bucket.epoch)
        numbers = (int.from_bytes(one.token[8:], "big") for one in mine)
        last = self._last_token[place] = max(self._last_token.get(place, 0), *numbers, 0)
        for one in mine:
            one.is_reasserted = True
        try:
            await self._outfit.store.reassert(bucket, self._outfit.writer.name, last, leases)
        except NodeAway as error:
            _log.debug("%s: %s", bucket.name, error.detail)
        ended = [one.lease for one in mine if not self._hand.has(one)]
        await self._hand.adjust(bucket, returned=ended)

    async def _tell_limits(self, bucket: Bucket) -> None:
        """The bucket must know which topics are held or limited before it hands anything out."""
        told = (self._topics.revision, bucket.epoch)
        if self._limits_told.get(bucket.index) == told:
            return
        limits = {topic.topic: limits_of(topic) for topic in self._topics.all()}
        limited = {name: limit for name, limit in limits.items() if limit != (0, 0, 0.0)}
        await self._outfit.store.limit(bucket, self._topics.revision, limited)
        self._limits_told[bucket.index] = told


def limits_of(topic: Topic) -> tuple[int, int, float]:
    """What a bucket must know of a topic: held, concurrency or 0, rate a second or 0."""
    is_held = not topic.enabled or topic.paused or topic.callback is None
    return int(is_held), topic.concurrency or 0, topic.rate or 0.0
