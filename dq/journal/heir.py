"""What the dead leave behind: their logs are applied, their leases given back.

Once a second, and at once when a writer is seen to have died:
  1. whatever of a dead writer's log a bucket lacks is applied, by the very script and under the
     very name of the dead (so it happens once, however often it is tried);
  2. then its leases come back to ready: a killed consumer's jobs are called again at once;
  3. leases that ran out (another host's consumer, a stopped one) come back to ready.
In that order: an outcome that reached the log is applied before its job could be leased again.
A job that was in hand at three deaths in a row is settled as dead, reason "poison".
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from dq.core import clock
from dq.core.errors import DqError, NodeAway, NodeFull
from dq.core.faults import reach
from dq.log.frames import NOTE, LogDamaged
from dq.log.log import cut_torn_tail, read_frames
from dq.log.neighbours import Neighbour, Neighbours
from dq.queue import records
from dq.queue.lane import AWAIT_OTHERS_MS, give_up
from dq.queue.nodes import Bucket, NodeRefused, Nodes
from dq.queue.records import StoredJob
from dq.queue.resend import missing_records
from dq.queue.store import Store, read_position
from dq.queue.writer import Writer

_log = logging.getLogger(__name__)

LOOK_S = 0.2
EACH_S = 1.0
MOST_LOSSES = 3
RESCUE_MOST = 500
BURIED = "buried"
"""A file in a dead writer's folder: its leases have been given back."""


class Heir:
    """Takes over from the writers of this host that have died."""

    def __init__(self, nodes: Nodes, store: Store, writer: Writer, root: Path) -> None:
        self._buckets = {bucket.name: bucket for bucket in nodes.buckets}
        self._store = store
        self._writer = writer
        self._neighbours = Neighbours(root)
        self._ends: dict[bytes, dict[str, int]] = {}
        self._told: set[str] = set()
        self._next_token = 1

    async def run(self) -> None:
        """Until cancelled."""
        full_at_ms = 0.0
        while True:
            dead = self._find_dead()
            is_new = any(not (one.folder / BURIED).exists() for one in dead)
            if is_new or clock.mono_ms() >= full_at_ms:
                await self.tick(dead)
                full_at_ms = clock.mono_ms() + EACH_S * 1000
            await asyncio.sleep(LOOK_S)

    def _find_dead(self) -> list[Neighbour]:
        everyone = self._neighbours.look()
        for name, reason in self._neighbours.damaged.items():
            if name not in self._told:
                self._told.add(name)
                _log.error("log %s can't be read and is left alone: %s", name, reason)
        return [one for one in everyone if not one.is_alive()]

    async def tick(self, dead: list[Neighbour] | None = None) -> None:
        """One pass over the dead and over the leases that ran out."""
        dead = self._find_dead() if dead is None else dead
        for one in dead:
            try:
                await self._bury(one)
            except (NodeAway, NodeFull) as error:
                _log.debug("the log of %s waits: %s", one.head.process, error)
            except (LogDamaged, FileNotFoundError, NodeRefused) as error:
                self._tell_once(one, error)
        if all((one.folder / BURIED).exists() for one in dead):
            await self._rescue_expired()

    async def _rescue_expired(self) -> None:
        for bucket in self._buckets.values():
            try:
                await self._rescue(bucket, b"")
            except NodeAway as error:
                _log.debug("%s: %s", bucket.name, error.detail)

    def _tell_once(self, one: Neighbour, error: Exception) -> None:
        if one.folder.name not in self._told:
            self._told.add(one.folder.name)
            _log.error(
                "the log of %s (%s) can't be applied: %s", one.head.process, one.folder, error
            )

    async def _bury(self, one: Neighbour) -> None:
        reach("heir.found")
        for name, last in (await self._ends_of(one)).items():
            bucket = self._buckets.get(name)
            if bucket is not None:
                await self._apply_rest(one, bucket, last)
        if (one.folder / BURIED).exists():
            return
        reach("heir.applied")
        for bucket in self._buckets.values():
            await self._rescue(bucket, one.writer)
        reach("heir.rescued")
        (one.folder / BURIED).touch()
        reach("heir.buried")

    async def _ends_of(self, one: Neighbour) -> dict[str, int]:
        """Per bucket the last sequence in a dead log; the log is read once, it won't grow."""
        if one.writer not in self._ends:
            self._ends[one.writer] = await asyncio.to_thread(_last_sequences, one)
        return self._ends[one.writer]

    async def _apply_rest(self, one: Neighbour, bucket: Bucket, last: int) -> None:
        epoch, _, applied = await read_position(bucket, one.writer)
        if not epoch:
            raise NodeAway(f"{bucket.name} has not been begun")
        bucket.epoch = epoch
        if not one.is_declared(bucket.name, bucket.epoch_number):
            raise NodeAway(f"{bucket.name} is being restored")
        index = one.index_of[bucket.name]
        if applied < last:
            chunks = await asyncio.to_thread(missing_records, one.folder, index, applied, last + 1)
            if not chunks or chunks[0][0] != applied + 1:
                await give_up(self._store, bucket, one.folder, applied + 1)
                return
            for first, payloads in chunks:
                await self._replay(one, bucket, first, payloads)
            _log.warning(
                "%s: %d records of %s, which died, were applied",
                bucket.name,
                last - applied,
                one.head.process,
            )
        one.declare(bucket.name, bucket.epoch_number, max(one.high[index], last))

    async def _replay(
        self, one: Neighbour, bucket: Bucket, first: int, payloads: list[bytes]
    ) -> None:
        deadline_ms = clock.mono_ms() + AWAIT_OTHERS_MS
        while payloads:
            flags = "r" if clock.mono_ms() < deadline_ms else "rf"
            answer = await self._store.apply(bucket, one.writer, first, payloads, flags=flags)
            if answer.state in ("EPOCH", "GAP"):
                raise NodeAway(f"{bucket.name} has lost something again: {answer.state}")
            payloads = payloads[answer.position - first + 1 :]
            first = answer.position + 1
            if answer.state == "WAIT":
                await asyncio.sleep(0.02)

    async def _rescue(self, bucket: Bucket, consumer: bytes) -> None:
        """Give back a dead consumer's leases, or ('' ) those that ran out, in bounded calls."""
        while True:
            rescued = await self._store.rescue(
                bucket,
                self._writer.name,
                self._next_token,
                consumer=consumer,
                limit=RESCUE_MOST,
                most_losses=MOST_LOSSES,
            )
            self._next_token += len(rescued.poisoned)
            if rescued.count:
                why = "their consumer died" if consumer else "their lease ran out"
                _log.warning("%s: %d jobs are ready again, %s", bucket.name, rescued.count, why)
            for token, job in rescued.poisoned:
                await self._settle(bucket, token, job)
            if rescued.count < RESCUE_MOST:
                return

    async def _settle(self, bucket: Bucket, token: bytes, job: StoredJob) -> None:
        """A poisoned job is dead; one that was cancelled while it ran ends, it is not retried."""
        verdict, due_ms = records.Verdict.DEAD, 0
        detail = f"poison: {MOST_LOSSES} consumers died or fell silent with this job in hand"
        if job.is_closed:
            verdict, due_ms = records.Verdict.RETRY, clock.now_ms()
            detail = "cancelled, and its consumer died or fell silent"
        story = [job.retries + 1, None, 0, "", detail, b"", "dq-journal"]
        record = records.settle(self._writer.next_stamp(), job, token, verdict, due_ms, story)
        reach("heir.held")
        try:
            await self._writer.submit(bucket, record)
        except DqError as error:
            _log.warning("%s/%s: %s; not settled yet: %s", job.topic, job.id, detail, error)


def _last_sequences(one: Neighbour) -> dict[str, int]:
    """Also cuts a torn tail off: its writer died in the middle of it, nobody was answered."""
    last: dict[str, int] = {}
    names = one.head.buckets
    end = 0
    for frame in read_frames(one.folder):
        end = frame.end
        if frame.bucket != NOTE:
            last[names[frame.bucket]] = frame.seq
    cut_torn_tail(one.folder, end)
    return last
