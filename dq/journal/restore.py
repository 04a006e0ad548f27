"""Puts back what a node has lost: everything, where a bucket is gone; a part, by comparing.

A bucket that is not there (a fresh node, one that was wiped) is begun anew in these steps:
  1. found: a new epoch, state `restoring`; for a moment nothing is leased, so that consumers can
     say what they have in hand
  2. the journal ships all that was applied before, so that SQL knows it
  3. declare: for each log of this host, up to where SQL has it: what lies beyond is for its writer
     (or its heir) to send again
  4. stream: the unfinished jobs from SQL, in pages, those that are due soon first; what is due goes
     out meanwhile
  5. state `ready`; until then a job that is not found may still come (503, never 404)
Each step can be cut and begun again. One process per bucket does it, under a lock in the node.
While SQL is away the logs alone give back what they hold, and the rest follows when it is there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Container
from pathlib import Path
from zlib import crc32

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.faults import reach
from dq.db.journal_store import JournalStore
from dq.db.rows import MessageRow
from dq.journal.tail import Tail
from dq.log.frames import NOTE
from dq.log.log import read_frames, segments
from dq.log.neighbours import Neighbour, Neighbours
from dq.queue.nodes import Bucket, Nodes, ask
from dq.queue.records import StoredJob, Version
from dq.queue.store import Store, read_position

_log = logging.getLogger(__name__)

HOLD_MS = 1_500
LOCK_MS = 10_000
PAGE = 1_000
PAGES_AT_ONCE = 4
"""Of all buckets that are restored together, taken in turn."""
SOON_MS = 600_000
"""What is due by then comes back first."""
SHIPPED_WITHIN_S = 30.0
LOOK_S = 0.05


class Restorer:
    """Restores buckets of the nodes from the journal; `root` holds the logs of this host."""

    def __init__(self, nodes: Nodes, store: Store, journal: JournalStore, root: Path) -> None:
        self._nodes = nodes
        self._store = store
        self._journal = journal
        self._neighbours = Neighbours(root)
        self._owner = secrets.token_hex(8)
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE)

    async def look_after(self, bucket: Bucket) -> int | None:
        """Begin a bucket that is not there and restore one that is being restored; how many jobs
        were put back, None when there was nothing to do.

        Raises NodeAway, and DatabaseAway when the rest must wait for SQL.
        """
        epoch, state, _ = await read_position(bucket, b"")
        if epoch and state == "ready":
            self.see_ready(bucket, epoch)
            return None
        if not await self._lock(bucket):
            return None
        if not epoch:
            reach("restore.found")
            await self._begin(bucket)
        else:
            bucket.epoch = epoch
        return await self._restore(bucket)

    def see_ready(self, bucket: Bucket, epoch: bytes) -> None:
        """The bucket is there, and nothing is being restored."""
        bucket.epoch = epoch
        self._declare_new(bucket)

    async def _begin(self, bucket: Bucket) -> None:
        has_lost = any(log.high_of(bucket.name) for log in self._neighbours.look())
        hold_ms = HOLD_MS if has_lost else 0
        epoch = secrets.token_hex(8).encode()
        bucket.epoch, _ = await self._store.found(bucket, epoch, "restoring", hold_ms)
        reach("restore.begun")
        if has_lost:
            _log.error("%s is empty: it has lost everything and is being restored", bucket.name)

    async def _restore(self, bucket: Bucket) -> int:
        began_ms = clock.mono_ms()
        try:
            await self._until_shipped(bucket)
            reach("restore.shipped")
            await self._declare(bucket)
            reach("restore.declared")
            count = await self._stream(bucket)
        except DatabaseAway:
            await self._declare_whole_logs(bucket)
            raise
        await ask(bucket.node, bucket.node.client.hset(bucket.keys[0], "state", "ready"))
        reach("restore.ready")
        await ask(bucket.node, bucket.node.client.delete(_lock_key(bucket)))
        if count:
            seconds = (clock.mono_ms() - began_ms) / 1000
            _log.warning("%s: %d jobs restored in %.1f s", bucket.name, count, seconds)
        return count

    async def _lock(self, bucket: Bucket) -> bool:
        """Ours for a while; said again while we work."""
        client, key = bucket.node.client, _lock_key(bucket)
        if await ask(bucket.node, client.set(key, self._owner, nx=True, px=LOCK_MS)):
            return True
        owner = await ask(bucket.node, client.get(key))
        if owner != self._owner.encode():
            return False
        await ask(bucket.node, client.pexpire(key, LOCK_MS))
        return True

    async def _until_shipped(self, bucket: Bucket) -> None:
        """Wait until SQL has all that is known to have been applied. Raises DatabaseAway."""
        deadline_ms = clock.mono_ms() + SHIPPED_WITHIN_S * 1000
        names = {one.name for one in self._nodes.buckets}
        waiting = [
            _Shipping(log, bucket.name, log.high_of(bucket.name))
            for log in self._neighbours.look()
            if _is_undeclared(log, bucket)
        ]
        while waiting:
            cursors = await self._journal.open_cursors()
            waiting = [one for one in waiting if one.lacks(cursors.get(one.log.writer, 0), names)]
            if waiting and clock.mono_ms() > deadline_ms:
                raise DatabaseAway("the journal does not catch up with the logs")
            if waiting:
                await self._lock(bucket)
                await asyncio.sleep(LOOK_S)

    async def _declare(self, bucket: Bucket) -> None:
        """Say up to where each log of this host stands in the bucket: as far as SQL has it."""
        cursors = await self._journal.open_cursors()
        for log in self._neighbours.look():
            if not _is_undeclared(log, bucket):
                continue
            end = cursors.get(log.writer, 0)
            shipped = await asyncio.to_thread(_shipped, log, bucket.name, end)
            await self._set_position(bucket, log, shipped)

    async def _declare_whole_logs(self, bucket: Bucket) -> None:
        """Without SQL: logs that still hold everything are sent again from their beginning."""
        for log in self._neighbours.look():
            if _is_undeclared(log, bucket) and segments(log.folder)[0][0] == 0:
                log.declare(bucket.name, bucket.epoch_number, 0)

    async def _set_position(self, bucket: Bucket, log: Neighbour, applied: int) -> None:
        command = bucket.node.client.hset(bucket.keys[0], b"h" + log.writer, applied)
        await ask(bucket.node, command)
        reach("restore.placed")
        log.declare(bucket.name, bucket.epoch_number, applied)

    def _declare_new(self, bucket: Bucket) -> None:
        """A log of another epoch that appears late (its host was away): it has to be sent again
        from where the bucket has it, which its writer sees by itself."""
        for log in self._neighbours.look():
            if bucket.name in log.index_of and not log.is_declared(
                bucket.name, bucket.epoch_number
            ):
                log.high[log.index_of[bucket.name]] = 0

    async def _stream(self, bucket: Bucket) -> int:
        """Unfinished jobs from SQL that belong here, first those that are due soon; how many were
        missing."""
        count = await self._stream_part(bucket, clock.now_ms() + SOON_MS)
        return count + await self._stream_part(bucket, None)

    async def _stream_part(self, bucket: Bucket, due_before_ms: int | None) -> int:
        names = [one.name for one in self._nodes.buckets]
        not_of = names if bucket in self._nodes.all[0].buckets else ()
        after, count = b"", 0
        while True:
            async with self._turns:
                page = await self._journal.unfinished(
                    after, PAGE, bucket=bucket.name, not_of=not_of, due_before_ms=due_before_ms
                )
                if not page:
                    return count
                after = page[-1].version
                jobs = [stored_job(row) for row in page if self._is_here(bucket, row)]
                if jobs:
                    count += await self._store.restore(bucket, jobs)
                    reach("restore.streamed")
                await self._lock(bucket)

    def _is_here(self, bucket: Bucket, row: MessageRow) -> bool:
        return row.bucket == bucket.name or adopting_bucket(self._nodes, row.topic) is bucket


def adopting_bucket(nodes: Nodes, topic: str) -> Bucket:
    """Where the jobs go whose bucket is no more: to the first node."""
    first = nodes.all[0].buckets
    return first[crc32(topic.encode()) % len(first)]


def stored_job(row: MessageRow) -> StoredJob:
    """An unfinished job as its bucket holds it. After `attempt` attempts come that many retries."""
    return StoredJob(
        version=Version(row.stamp, row.version[8:], row.seq),
        due_ms=row.due,
        retries=row.attempt,
        priority=row.priority,
        timeout_ms=row.timeout_ms,
        topic=row.topic,
        id=row.id,
        key=row.bkey,
        body=row.body,
        changed=row.changed if row.changed > row.stamp else 0,
    )


def _is_undeclared(log: Neighbour, bucket: Bucket) -> bool:
    """Whether it must be said anew where a log stands in a bucket that was begun anew. What `high`
    says of another boot of the machine is no answer."""
    if bucket.name not in log.index_of or log.is_placed(bucket.name, bucket.epoch_number):
        return False
    is_sure = log.is_sure(bucket.name)
    return not is_sure or not log.is_declared(bucket.name, bucket.epoch_number)


def _lock_key(bucket: Bucket) -> str:
    return bucket.keys[0].replace(":meta", ":restorer")


class _Shipping:
    """How far SQL has one log, with regard to one bucket that lost what was applied up to
    `applied`."""

    def __init__(self, log: Neighbour, bucket: str, applied: int) -> None:
        self.log = log
        self._index = log.index_of[bucket]
        self._applied = applied
        self._pos = 0
        self._last = 0

    def lacks(self, cursor: int, buckets: Container[str]) -> bool:
        """Whether SQL still lacks something that the journal could ship now."""
        for frame in read_frames(self.log.folder, self._pos):
            if frame.pos >= cursor:
                break
            self._pos = frame.end
            if frame.bucket == self._index:
                self._last = frame.seq
        if self._last >= self._applied:
            return False
        try:
            return Tail(self.log, cursor, buckets).read() is not None
        except (FileNotFoundError, IndexError):
            return False  # it was retired just now: SQL has all of it


def _shipped(log: Neighbour, bucket: str, end: int) -> int:
    """The last sequence for a bucket that lies before position `end` of a log."""
    index, last = log.index_of[bucket], 0
    for frame in read_frames(log.folder):
        if frame.pos >= end:
            break
        if frame.bucket == index and frame.bucket != NOTE:
            last = frame.seq
    return last
