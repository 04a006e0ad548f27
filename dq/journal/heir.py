"""What the dead leave behind: their logs are applied, their leases given back.

At once when a writer has died, and once a second:
  1. whatever of a dead writer's log a bucket lacks is applied, by the very script and under the
     very name of the dead (so it happens once, however often it is tried);
  2. then its leases come back to ready: a killed consumer's jobs are called again at once;
  3. every other second leases that ran out (another host's consumer, a stopped one) come back.
In that order: an outcome that reached the log is applied before its job could be leased again.
Each bucket for itself: a node that is away holds up its own jobs only. A log that can't be read
holds up nobody; what its writer had in hand comes back when the leases run out.
A job that was in hand at three deaths in a row is settled as dead, reason "poison".
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from dq.core import clock
from dq.core.errors import DqError, NodeAway, NodeFull
from dq.core.faults import reach
from dq.core.pace import next_turn
from dq.journal.endings import Endings
from dq.log.frames import NOTE, LogDamaged, encode_frame
from dq.log.log import append_to_dead, cut_torn_tail, read_frames
from dq.log.neighbours import Neighbour, Neighbours
from dq.queue import records
from dq.queue.lane import AWAIT_OTHERS_MS, give_up
from dq.queue.nodes import Bucket, NodeRefused, Nodes, ask, ask_all
from dq.queue.records import Code, StoredJob
from dq.queue.resend import missing_records
from dq.queue.steady import SteadyClock
from dq.queue.store import Store, read_position
from dq.queue.writer import Writer

_log = logging.getLogger(__name__)

EACH_S = 1.0
RESCUE_EACH_S = 1.5
AGAIN_S = 0.2
"""While something is left to do for one of the dead."""
MOST_LOSSES = 3
RESCUE_MOST = 500
BURIED = "buried"
"""A file in a dead writer's folder: its leases have been given back."""


class Heir:
    """Takes over from the writers of this host that have died."""

    def __init__(self, nodes: Nodes, store: Store, writer: Writer, root: Path) -> None:
        self._nodes = nodes
        self._buckets = {bucket.name: bucket for bucket in nodes.buckets}
        self._store = store
        self._writer = writer
        self._neighbours = Neighbours(root)
        self._ends: dict[bytes, dict[str, int]] = {}
        self._told: set[str] = set()
        self._taken_over: set[tuple[bytes, str]] = set()  # writer and bucket, until it is buried
        self._waits_since_ms: dict[tuple[bytes, str], float] = {}
        self._clocks = {node.name: SteadyClock(node.name) for node in nodes.all}
        self._next_token = 1
        self._has_news = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        endings = Endings(self._has_news.set)
        turns = asyncio.create_task(self._look_each_turn())
        next_rescue_ms = 0.0
        try:
            while True:
                self._has_news.clear()
                dead = self._find_dead()
                endings.watch({one.head.pid for one in self._neighbours.look() if one not in dead})
                is_rescue_due = clock.mono_ms() >= next_rescue_ms
                await self.tick(dead, expired=is_rescue_due)
                if is_rescue_due:
                    next_rescue_ms = clock.mono_ms() + RESCUE_EACH_S * 1000
                if self._unburied(dead):
                    await asyncio.sleep(AGAIN_S)
                else:
                    await self._has_news.wait()
        finally:
            turns.cancel()
            endings.close()

    async def _look_each_turn(self) -> None:
        while True:
            await next_turn(EACH_S)
            self._has_news.set()

    def _find_dead(self) -> list[Neighbour]:
        everyone = self._neighbours.look()
        for name, reason in self._neighbours.damaged.items():
            if name not in self._told:
                self._told.add(name)
                _log.error("log %s can't be read and is left alone: %s", name, reason)
        return [one for one in everyone if not one.is_alive()]

    async def tick(self, dead: list[Neighbour] | None = None, *, expired: bool = True) -> None:
        """One pass over the dead and, with `expired`, over the leases that ran out."""
        dead = self._find_dead() if dead is None else dead
        buried = [one for one in dead if (one.folder / BURIED).exists()]
        for one in [one for one in dead if one not in buried] + await self._find_lacking(buried):
            try:
                await self._bury(one)
            except (NodeAway, NodeFull) as error:
                _log.debug("the log of %s waits: %s", one.head.process, error)
            except (LogDamaged, FileNotFoundError, NodeRefused) as error:
                self._tell_once(one, error)
                for name in self._buckets:
                    one.vouch(name, 0)
        if expired:
            await self._rescue_expired(self._unburied(dead))

    def _unburied(self, dead: list[Neighbour]) -> list[Neighbour]:
        """Those that something is still to be done for; not the ones that can't be read."""
        return [
            one
            for one in dead
            if one.folder.name not in self._told and not (one.folder / BURIED).exists()
        ]

    async def _find_lacking(self, buried: list[Neighbour]) -> list[Neighbour]:
        """Those whose records a bucket may lack again: it fell back, or was begun anew."""
        lacking: set[bytes] = set()
        for node in self._nodes.all if buried else ():
            fields = ("epoch", *(b"h" + one.writer for one in buried))
            commands = [("HMGET", bucket.keys[0], *fields) for bucket in node.buckets]
            try:
                answers = await ask_all(node, commands)
            except NodeAway as error:
                _log.debug("%s", error.detail)
                continue
            for bucket, (epoch, *applied) in zip(node.buckets, answers, strict=True):
                bucket.epoch = epoch or bucket.epoch
                lacking |= {
                    one.writer
                    for one, position in zip(buried, applied, strict=True)
                    if not epoch or not self._is_whole(one, bucket, int(position or 0))
                }
        return [one for one in buried if one.writer in lacking]

    def _is_whole(self, one: Neighbour, bucket: Bucket, applied: int) -> bool:
        """Whether there is nothing to do for one of the dead in a bucket that stands there."""
        if one.writer not in self._ends or not one.is_sure(bucket.name):
            return False
        last = self._ends[one.writer].get(bucket.name, 0)
        if not last:
            return True
        is_told = applied <= one.high_of(bucket.name)
        return is_told and applied >= last and one.is_declared(bucket.name, bucket.epoch_number)

    async def _rescue_expired(self, unburied: list[Neighbour]) -> None:
        free = [
            self._rescue_those_of(bucket)
            for bucket in self._buckets.values()
            if all((one.writer, bucket.name) in self._taken_over for one in unburied)
        ]
        await asyncio.gather(*free)

    async def _rescue_those_of(self, bucket: Bucket) -> None:
        try:
            await self._rescue(bucket, b"")
        except NodeAway as error:
            _log.debug("%s: %s", bucket.name, error.detail)

    def _tell_once(self, one: Neighbour, error: Exception) -> None:
        if one.folder.name not in self._told and one.folder.exists():  # else it was retired
            self._told.add(one.folder.name)
            _log.error(
                "the log of %s (%s) can't be applied: %s", one.head.process, one.folder, error
            )

    async def _bury(self, one: Neighbour) -> None:
        """Raises NodeAway, NodeFull when something is left to do, after all that could be done."""
        reach("heir.found")
        ends = await self._ends_of(one)
        is_buried = (one.folder / BURIED).exists()
        waits: NodeAway | NodeFull | None = None
        for bucket in self._buckets.values():
            try:
                await self._take_over(one, bucket, ends.get(bucket.name, 0), is_buried)
            except (NodeAway, NodeFull) as error:
                waits = error
        if waits is not None:
            raise waits
        if not is_buried:
            (one.folder / BURIED).touch()
            reach("heir.buried")
            self._taken_over -= {(one.writer, name) for name in self._buckets}

    async def _take_over(
        self, one: Neighbour, bucket: Bucket, last: int, has_no_leases: bool
    ) -> None:
        if last:
            await self._apply_rest(one, bucket, last)
        one.vouch(bucket.name, last)
        place = (one.writer, bucket.name)
        if not has_no_leases and place not in self._taken_over:
            reach("heir.applied")
            await self._rescue(bucket, one.writer)
            reach("heir.rescued")
            self._taken_over.add(place)

    async def _ends_of(self, one: Neighbour) -> dict[str, int]:
        """Per bucket the last sequence in a dead log; the log is read once, it won't grow."""
        if one.writer not in self._ends:
            self._ends[one.writer] = await asyncio.to_thread(_last_sequences, one)
        return self._ends[one.writer]

    async def _apply_rest(self, one: Neighbour, bucket: Bucket, last: int) -> None:
        epoch, state, applied = await read_position(bucket, one.writer)
        if not epoch:
            raise NodeAway(f"{bucket.name} has not been begun")
        bucket.epoch = epoch
        is_unplaced = state != "ready" and not one.is_sure(bucket.name)
        is_unplaced = is_unplaced and not one.is_placed(bucket.name, bucket.epoch_number)
        if is_unplaced or not one.is_declared(bucket.name, bucket.epoch_number):
            raise NodeAway(f"{bucket.name} is being restored")
        index = one.index_of[bucket.name]
        if applied > one.high[index]:
            await self._note_unnoted(one, bucket, applied)
        if applied < last:
            chunks = await asyncio.to_thread(missing_records, one.folder, index, applied, last + 1)
            if not chunks or chunks[0][0] != applied + 1:
                await give_up(self._store, bucket, one.folder, applied + 1)
                raise NodeAway(f"{bucket.name} is being restored")
            for first, payloads in chunks:
                await self._replay(one, bucket, first, payloads)
            _log.warning(
                "%s: %d records of %s, which died, were applied",
                bucket.name,
                last - applied,
                one.head.process,
            )
        high = max(one.high[index], last) if one.is_sure(bucket.name) else last
        one.declare(bucket.name, bucket.epoch_number, high)

    async def _replay(
        self, one: Neighbour, bucket: Bucket, first: int, payloads: list[bytes]
    ) -> None:
        """A record that waits for another writer's is tried again at the next tick: that writer may
        be dead as well, and its log be the next one here."""
        place = (one.writer, bucket.name)
        while payloads:
            waited_ms = clock.mono_ms() - self._waits_since_ms.get(place, clock.mono_ms())
            flags = "r" if waited_ms < AWAIT_OTHERS_MS else "rf"
            answer = await self._store.apply(bucket, one.writer, first, payloads, flags=flags)
            if answer.state in ("EPOCH", "GAP"):
                raise NodeAway(f"{bucket.name} has lost something again: {answer.state}")
            self._note_refusals(one, bucket, first, answer.codes)
            payloads = payloads[answer.position - first + 1 :]
            first = answer.position + 1
            if answer.state == "WAIT":
                self._waits_since_ms.setdefault(place, clock.mono_ms())
                raise NodeAway(f"{bucket.name}: a record waits for another writer's")
        self._waits_since_ms.pop(place, None)

    async def _note_unnoted(self, one: Neighbour, bucket: Bucket, applied: int) -> None:
        """It may have died between the answer of its last call and the notes that belong to it."""
        field = b"o" + one.writer
        codes = await ask(bucket.node, bucket.node.client.hget(bucket.keys[0], field)) or b""
        self._note_refusals(one, bucket, applied - len(codes) + 1, codes)

    def _note_refusals(self, one: Neighbour, bucket: Bucket, first: int, codes: bytes) -> None:
        """Into the dead log itself, before the records count as applied: who reads it must not
        take them for done. Raises OSError."""
        index = one.index_of[bucket.name]
        notes = [
            records.note(self._writer.next_stamp(), index, seq, code)
            for seq, code in enumerate(codes, first)
            if code >= Code.REFUSED
        ]
        if notes:
            frames = (encode_frame(NOTE, 0, records.pack(note)) for note in notes)
            append_to_dead(one.folder, b"".join(frames))

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
                steady=None if consumer else self._clocks[bucket.node.name],
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
