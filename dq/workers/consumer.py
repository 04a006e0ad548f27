"""dq-consumer: leases ready jobs, calls them back, settles what came of it.

As many callbacks are in flight as DQ_CONCURRENCY allows; leases are taken in batches of what is
free, by a loop for each node, so that one that does not answer holds up only its own jobs. A
consumer without room leaves the tokens of the bell to others. Invariants: a job is called
only under a lease; a version that this process has in hand already is never called a second time,
whatever Redis forgot and offers again; a slot is free again when its callback has ended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from dataclasses import dataclass
from typing import cast

from dq.core import clock
from dq.core.errors import DiskFull, DqError, NodeAway
from dq.core.faults import reach
from dq.core.settings import Settings
from dq.core.topic import Topic
from dq.db.topic_book import TopicBook
from dq.delivery.attempt import Outcome, make_attempt, timeout_of
from dq.delivery.http import Caller
from dq.log.neighbours import Neighbours
from dq.queue import records
from dq.queue.bell import WORK, Bell, put_back
from dq.queue.nodes import Bucket, Node
from dq.queue.records import Code, StoredJob, digest_of
from dq.queue.store import LEASE_MOST, LEASE_MS, Leased
from dq.workers.base import Context
from dq.workers.outfit import Outfit, open_outfit, work_until_stopping

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often topics and neighbours are looked at: a stat and a listing."""
GATHER_S = 0.005
"""Under a backlog: how long to wait for more free slots before the next lease."""
UNSURE_S = 0.05
"""After a power cut: from one look at what the heir has done to the next."""
LEASE_SPARE_MS = 10_000
"""A lease outlasts its callback's timeout by so much."""
GC_EACH = 20_000
"""Objects made before young garbage is looked for. A callback in flight is some dozens of them;
with Python's 700 the collector was seen in a seventh of the samples of a busy consumer."""


@dataclass(slots=True)
class _InHand:
    """A version that is being called or settled here, and the newest lease of it."""

    bucket: Bucket
    job: StoredJob
    token: bytes
    until_ms: int
    is_reasserted: bool = False

    @property
    def lease(self) -> tuple[bytes, bytes]:
        return digest_of(self.job.topic, self.job.id), self.token


class Consumer:
    """One consumer over all buckets."""

    def __init__(self, name: str, settings: Settings, outfit: Outfit, topics: TopicBook) -> None:
        self._name = name
        self._outfit = outfit
        self._writer = outfit.writer
        self._topics = topics
        self._unit_s = settings.retry_unit_s
        self._caller = Caller(settings.callback_deny, limit=settings.concurrency)
        self._neighbours = Neighbours(settings.data_dir / "log")
        self._free = settings.concurrency
        self._most = settings.concurrency
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._asked_for = 0
        self._to_look_at = {node: set(node.buckets) for node in outfit.nodes.all}
        self._has_news = {node: asyncio.Event() for node in outfit.nodes.all}
        self._in_hand: dict[bytes, _InHand] = {}
        self._per_topic: Counter[str] = Counter()
        self._unknown: set[str] = set()
        self._limits_told: dict[int, tuple[int, bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_token = 1
        self._last_token: dict[tuple[int, bytes], int] = {}

    async def run(self) -> None:
        """Until cancelled; callbacks under way go on, see `drain`."""
        bell = Bell(self._outfit.nodes.all, WORK, self._ring, self._has_room.wait)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bell.listen())
            tasks.create_task(self._look_forever())
            for node in self._outfit.nodes.all:
                tasks.create_task(self._lease_forever(node))

    async def drain(self) -> None:
        """Wait for the callbacks under way and what they settle."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._caller.close()

    def _ring(self, bucket: Bucket | None) -> None:
        if bucket is not None and self._free <= 0:
            self._keep(asyncio.create_task(put_back(bucket, WORK)))
            return
        for one in self._outfit.nodes.buckets if bucket is None else [bucket]:
            self._to_look_at[one.node].add(one)
            self._has_news[one.node].set()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_forever(self) -> None:
        while True:
            if self._topics.refresh():
                self._unknown.clear()
                self._ring(None)
            self._neighbours.look()
            await asyncio.sleep(LOOK_S)

    async def _lease_forever(self, node: Node) -> None:
        has_news = self._has_news[node]
        while True:
            await has_news.wait()
            await self._has_room.wait()
            has_news.clear()
            looked_at, self._to_look_at[node] = self._to_look_at[node], set()
            for bucket in sorted(looked_at, key=lambda bucket: bucket.number):
                if self._free <= 0 or await self._lease(bucket):
                    self._to_look_at[node].add(bucket)
            if self._to_look_at[node]:
                has_news.set()
                await self._gather_room()

    async def _gather_room(self) -> None:
        """One call that leases many costs little more than one that leases one."""
        if self._free < self._most // 8 and self._free < LEASE_MOST:
            await asyncio.sleep(GATHER_S)

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
                self._writer.name,
                first,
                want,
                last_token=self._last_token.get((bucket.index, bucket.epoch), 0),
                passed_over=self._passed_over(),
                high=self._neighbours.high_of(bucket.name),
            )
            return await self._take(bucket, leased, want)
        except NodeAway as error:
            _log.debug("%s: %s", bucket.name, error.detail)
            return False
        finally:
            self._asked_for -= want

    def _share_of_room(self) -> int:
        """What may be asked of one node while others are asked too: not all, as it may not answer;
        at least one, so a few more than DQ_CONCURRENCY may run when nearly all slots are taken."""
        left = (self._free - self._asked_for) // len(self._outfit.nodes.all)
        return min(max(1, left), LEASE_MOST)

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
        await self._begin(bucket, leased)
        return len(leased.jobs) >= want

    async def _reassert(self, bucket: Bucket) -> None:
        """The bucket has lost something, perhaps our leases too: say what is in hand here, or it
        would be handed out again."""
        mine = [one for one in self._in_hand.values() if one.bucket is bucket]
        leases = [(one.job, one.token, one.until_ms) for one in mine]
        last = self._last_token.get((bucket.index, bucket.epoch), 0)
        for one in mine:
            one.is_reasserted = True
        try:
            await self._outfit.store.reassert(bucket, self._writer.name, last, leases)
        except NodeAway as error:
            _log.debug("%s: %s", bucket.name, error.detail)
        ended = [one.lease for one in mine if one.job.version.key not in self._in_hand]
        await self._adjust(bucket, ended, [])

    def _come_back(self, bucket: Bucket, after_s: float) -> None:
        asyncio.get_running_loop().call_later(after_s, self._ring, bucket)

    async def _tell_limits(self, bucket: Bucket) -> None:
        """The bucket must know which topics are held or limited before it hands anything out."""
        told = (self._topics.revision, bucket.epoch)
        if self._limits_told.get(bucket.index) == told:
            return
        limits = {topic.topic: limits_of(topic) for topic in self._topics.all()}
        limited = {name: limit for name, limit in limits.items() if limit != (0, 0, 0.0)}
        await self._outfit.store.limit(bucket, self._topics.revision, limited)
        self._limits_told[bucket.index] = told

    def _passed_over(self) -> list[str]:
        """Topics that are unknown here, or have as many callbacks in flight as one may."""
        share = self._most - self._most // 5
        full = [topic for topic, count in self._per_topic.items() if count >= share]
        return [*self._unknown, *full]

    async def _begin(self, bucket: Bucket, leased: Leased) -> None:
        returned: list[tuple[bytes, bytes]] = []
        longer: list[tuple[bytes, bytes, int]] = []
        begun: list[tuple[bytes, StoredJob, Topic]] = []
        for token, job in leased.jobs:
            in_hand = self._in_hand.get(job.version.key)
            topic = self._topics.get(job.topic)
            if in_hand is not None:
                in_hand.token = token
            elif topic is None or topic.callback is None:
                self._unknown.add(job.topic)
                returned.append((digest_of(job.topic, job.id), token))
            else:
                begun.append((token, job, topic))
                needed_ms = int(timeout_of(topic, job) * 1000) + LEASE_SPARE_MS
                if needed_ms > LEASE_MS:
                    longer.append((digest_of(job.topic, job.id), token, leased.now_ms + needed_ms))
        await self._adjust(bucket, returned, longer)
        for token, job, topic in begun:
            until_ms = leased.now_ms + int(timeout_of(topic, job) * 1000) + LEASE_SPARE_MS
            self._start(_InHand(bucket, job, token, until_ms), topic)

    async def _adjust(
        self,
        bucket: Bucket,
        returned: list[tuple[bytes, bytes]],
        longer: list[tuple[bytes, bytes, int]],
    ) -> None:
        try:
            if returned:
                await self._outfit.store.give_back(bucket, returned)
            if longer:
                await self._outfit.store.extend(bucket, longer)
        except NodeAway as error:
            _log.warning("%s: leases not adjusted: %s", bucket.name, error.detail)

    def _start(self, one: _InHand, topic: Topic) -> None:
        self._in_hand[one.job.version.key] = one
        self._per_topic[one.job.topic] += 1
        self._free -= 1
        if self._free <= 0:
            self._has_room.clear()
        self._tasks.add(asyncio.create_task(self._serve(one, topic)))

    async def _serve(self, one: _InHand, topic: Topic) -> None:
        job = one.job
        try:
            try:
                reach("call.before")
                outcome = await make_attempt(self._caller, topic, job, self._unit_s, self._name)
            finally:
                self._release(job.topic)
            reach("call.after")
            await self._settle(one, outcome)
            reach("settle.applied")
        except DqError as error:
            _log.error("%s/%s: outcome not settled: %s", job.topic, job.id, error)
        except Exception:
            _log.exception("%s/%s: the attempt failed inside dq", job.topic, job.id)
        finally:
            del self._in_hand[job.version.key]
            if one.is_reasserted:  # perhaps after it was settled: then nobody holds that lease
                await self._adjust(one.bucket, [one.lease], [])
            self._tasks.discard(cast(asyncio.Task[None], asyncio.current_task()))

    def _release(self, topic: str) -> None:
        self._free += 1
        self._has_room.set()
        self._per_topic[topic] -= 1
        if not self._per_topic[topic]:
            del self._per_topic[topic]

    async def _settle(self, one: _InHand, outcome: Outcome) -> None:
        """Until the outcome counts, or is somebody else's to say."""
        job = one.job
        while True:
            token, stamp = one.token, self._writer.next_stamp()
            record = records.settle(
                stamp, job, token, outcome.verdict, outcome.due_ms, outcome.story
            )
            try:
                code = await self._writer.submit(one.bucket, record)
            except DiskFull:
                await self._wait_for_disk(one)
                continue
            if code is not Code.STALE or one.token == token:
                break
        if code >= Code.REFUSED:
            _log.info("%s/%s: outcome came too late: %s", job.topic, job.id, code.name)

    async def _wait_for_disk(self, one: _InHand) -> None:
        """The outcome can't be logged yet: keep the lease, or the job would be called again."""
        digest = digest_of(one.job.topic, one.job.id)
        await self._adjust(one.bucket, [], [(digest, one.token, clock.now_ms() + LEASE_MS)])
        await asyncio.sleep(1.0)


def limits_of(topic: Topic) -> tuple[int, int, float]:
    """What a bucket must know of a topic: held, concurrency or 0, rate a second or 0."""
    is_held = not topic.enabled or topic.paused or topic.callback is None
    return int(is_held), topic.concurrency or 0, topic.rate or 0.0


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
