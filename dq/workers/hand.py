"""What a consumer has in hand: each version from its lease to its settled outcome.

    take -> called back -> judged -> settled, until the outcome counts or is somebody else's to say

No step of a usual job waits in a task of its own: an `InHand` is told by the caller what was
answered, and by the writer what became of the outcome. Invariants: a version that is in hand is
never called a second time, whatever Redis forgot and offers again; a slot is free again when its
callback has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from dq.core import clock
from dq.core.errors import DiskFull, DqError, NodeAway, NodeFull
from dq.core.faults import reach
from dq.core.outcome import Answer
from dq.core.topic import Topic
from dq.delivery.attempt import Attempts, Outcome, timeout_of
from dq.queue import records
from dq.queue.nodes import Bucket
from dq.queue.records import Code, StoredJob, digest_of
from dq.queue.store import LEASE_MS, Store
from dq.queue.writer import Writer
from dq.workers.room import Room

_log = logging.getLogger(__name__)

LEASE_SPARE_MS = 10_000
"""A lease outlasts its callback's timeout by so much."""
LOOK_S = 1.0
"""Until a lease that may be needed longer than it lasts is made to: most are over by then."""
DISK_AGAIN_S = 1.0


class InHand:
    """A version that is being called or settled here, and the newest lease of it."""

    __slots__ = (
        "_hand",
        "_outcome",
        "_settled_under",
        "bucket",
        "is_reasserted",
        "job",
        "key",
        "token",
        "topic",
        "until_ms",
    )

    def __init__(self, hand: Hand, bucket: Bucket, job: StoredJob, token: bytes) -> None:
        self._hand = hand
        self.bucket = bucket
        self.job = job
        self.key = job.version.key
        self.token = token
        self.until_ms = 0
        self.is_reasserted = False

    @property
    def lease(self) -> tuple[bytes, bytes]:
        return digest_of(self.job.topic, self.job.id), self.token

    # Called back

    def begin(self, topic: Topic) -> None:
        self.topic = topic
        try:
            reach("call.before")
            self._hand.attempts.begin(topic, self.job, self.see_answer)
        except Exception as error:
            self._hand.room.release(self.job.topic)
            self._hand.end(self, error)

    def see_answer(self, url: str, answer: Answer) -> None:
        self._hand.room.release(self.job.topic)
        try:
            reach("call.after")
            self._outcome = self._hand.attempts.judge(self.topic, self.job, url, answer)
            self.settle()
        except Exception as error:
            self._hand.end(self, error)

    # Settled: the writer tells it what it would tell a future

    def settle(self) -> None:
        """Raises Overloaded."""
        outcome: Outcome = self._outcome
        writer, token = self._hand.writer, self.token
        self._settled_under = token
        stamp = writer.next_stamp()
        verdict, due_ms, story = outcome.verdict, outcome.due_ms, outcome.story
        record = records.settle(stamp, self.job, token, verdict, due_ms, story)
        writer.begin(self.bucket, record, self)

    def done(self) -> bool:
        return False

    def set_result(self, code: Code) -> None:
        try:
            if code is Code.STALE and self._settled_under != self.token:
                self.settle()  # it was leased to us again meanwhile
                return
            if code is Code.FULL:
                raise NodeFull()
            if code >= Code.REFUSED:
                job = self.job
                _log.info("%s/%s: outcome came too late: %s", job.topic, job.id, code.name)
            reach("settle.applied")
        except Exception as error:
            self._hand.end(self, error)
        else:
            self._hand.end(self)

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, DiskFull):
            self._hand.keep(self._settle_later())
        else:
            self._hand.end(self, error)

    async def _settle_later(self) -> None:
        """The outcome can't be logged yet: keep the lease, or the job would be called again."""
        longer = (*self.lease, clock.now_ms() + LEASE_MS)
        await self._hand.adjust(self.bucket, longer=[longer])
        await asyncio.sleep(DISK_AGAIN_S)
        try:
            self.settle()
        except Exception as error:
            self._hand.end(self, error)


class Hand:
    """All that one consumer has in hand."""

    def __init__(self, attempts: Attempts, writer: Writer, store: Store, room: Room) -> None:
        self.attempts = attempts
        self.writer = writer
        self.room = room
        self._store = store
        self._all: dict[bytes, InHand] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._to_lengthen: list[InHand] = []
        self._lengthening: asyncio.Task[None] | None = None
        self._has_ended = asyncio.Event()

    def take(
        self, bucket: Bucket, leased: Sequence[tuple[bytes, StoredJob, Topic]], now_ms: int
    ) -> None:
        """Call back what was leased at `now_ms` of the node's clock."""
        for token, job, topic in leased:
            taken = InHand(self, bucket, job, token)
            one = self._all.setdefault(taken.key, taken)
            if one is not taken:
                one.token = token
            else:
                self.room.take(job.topic)
                one.begin(topic)
            needed_ms = int(timeout_of(topic, job) * 1000) + LEASE_SPARE_MS
            one.until_ms = now_ms + needed_ms
            if needed_ms > LEASE_MS:
                self._lengthen_soon(one)

    def lease_anew(self, job: StoredJob, token: bytes) -> bool:
        """A version was leased that may be in hand already: then this is its lease now."""
        one = self._all.get(job.version.key)
        if one is not None:
            one.token = token
        return one is not None

    @property
    def is_empty(self) -> bool:
        return not self._all

    def of(self, bucket: Bucket) -> list[InHand]:
        """What is in hand of a bucket."""
        return [one for one in self._all.values() if one.bucket is bucket]

    def has(self, one: InHand) -> bool:
        """Whether it still is."""
        return self._all.get(one.key) is one

    def end(self, one: InHand, error: Exception | None = None) -> None:
        """It is settled, or can't be by us."""
        if isinstance(error, DqError):
            _log.error("%s/%s: outcome not settled: %s", one.job.topic, one.job.id, error)
        elif error is not None:
            _log.error(
                "%s/%s: the attempt failed inside dq", one.job.topic, one.job.id, exc_info=error
            )
        del self._all[one.key]
        if one.is_reasserted:  # perhaps after it was settled: then nobody holds that lease
            self.keep(self.adjust(one.bucket, returned=[one.lease]))
        if not self._all:
            self._has_ended.set()

    async def drain(self) -> None:
        """Wait for the callbacks under way and what they settle."""
        while self._all or self._tasks:
            self._has_ended.clear()
            if self._all:
                await self._has_ended.wait()
            else:
                await asyncio.wait(list(self._tasks))
        if self._lengthening is not None:
            self._lengthening.cancel()

    def keep(self, work: Coroutine[Any, Any, object]) -> None:
        """Do it in a task, before the consumer ends."""
        task: asyncio.Task[object] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Leases

    async def adjust(
        self,
        bucket: Bucket,
        *,
        returned: Sequence[tuple[bytes, bytes]] = (),
        longer: Sequence[tuple[bytes, bytes, int]] = (),
    ) -> bool:
        """Give leases (digest, token) back, and have others (…, until ms) last longer; False when
        the node can't be reached."""
        try:
            if returned:
                await self._store.give_back(bucket, returned)
            if longer:
                await self._store.extend(bucket, longer)
        except (NodeAway, NodeFull) as error:
            _log.warning("%s: leases not adjusted: %s", bucket.name, error)
            return False
        return True

    def _lengthen_soon(self, one: InHand) -> None:
        self._to_lengthen.append(one)
        if self._lengthening is None:
            self._lengthening = asyncio.create_task(self._lengthen())

    async def _lengthen(self) -> None:
        """Callbacks that may take longer than a lease lasts; nearly all are over soon."""
        while self._to_lengthen:
            await asyncio.sleep(LOOK_S)
            some, self._to_lengthen = self._to_lengthen, []
            by_bucket: dict[Bucket, list[InHand]] = {}
            for one in some:
                if self.has(one):
                    by_bucket.setdefault(one.bucket, []).append(one)
            for bucket, those in by_bucket.items():
                longer = [(*one.lease, one.until_ms) for one in those]
                if not await self.adjust(bucket, longer=longer):
                    self._to_lengthen += those
        self._lengthening = None
