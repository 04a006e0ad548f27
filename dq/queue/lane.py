"""One writer's records for one bucket, applied strictly in order.

A group is sent until it is applied, however often the node goes away meanwhile. The script says
what it lacks (GAP), that it waits for another writer (WAIT), or that the bucket was begun anew
(EPOCH); whatever is missing is read from the log and sent again. Invariant: `high` moves only when
the records up to it are applied and every refusal among them stands in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from dq.core import clock
from dq.core.errors import NodeAway, NodeFull
from dq.core.faults import reach
from dq.log.frames import LogDamaged
from dq.log.log import EPOCHS, Log, segments
from dq.queue.nodes import Bucket, NodeRefused
from dq.queue.records import CODES, NOTHING, Code, Op
from dq.queue.resend import missing_records
from dq.queue.store import Store, read_position

_log = logging.getLogger(__name__)

APPLY_MOST = 200
APPLY_BYTES = 4 * 1024 * 1024
AWAIT_OTHERS_MS = 5_000


class Answer(Protocol):
    """Whoever waits for an outcome: a future of it, or what behaves like one."""

    def done(self) -> bool: ...
    def set_result(self, result: Code, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Entry(msgspec.Struct, eq=False):
    """A record on its way. `lane`: None for a note, which is for the log alone."""

    lane: Lane | None
    payload: bytes
    answer: Answer
    since_ms: float
    seq: int = 0

    def resolve(self, code: Code) -> None:
        if not self.answer.done():
            self.answer.set_result(code)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def size_of(entries: Iterable[Entry]) -> int:
    """The bytes of their records."""
    return sum([len(entry.payload) for entry in entries])


async def give_up(store: Store, bucket: Bucket, folder: Path, first: int) -> None:
    """A bucket lacks records from `first` on that the log no longer has: the journal has them, and
    the bucket is restored from there."""
    if not (parts := segments(folder)):
        raise FileNotFoundError(f"{folder} is no more")
    if parts[0][0] == 0:
        raise LogDamaged(f"{folder} lacks the record {first} of {bucket.name}")
    _log.error("%s lacks records that are only in the journal; it is restored", bucket.name)
    try:
        await store.wipe(bucket)
    except NodeAway as error:
        _log.debug("%s", error.detail)
    await asyncio.sleep(1.0)


class Host(Protocol):
    """What a lane needs of its writer (dq/queue/writer.py)."""

    @property
    def log(self) -> Log: ...
    @property
    def name(self) -> bytes: ...
    @property
    def store(self) -> Store: ...
    @property
    def asks_replica(self) -> bool: ...

    def forget(self, entries: Sequence[Entry]) -> None: ...
    async def note_refusals(self, bucket: Bucket, refused: list[tuple[int, Code]]) -> None: ...


class Lane:
    """The records of one writer for one bucket, in order."""

    def __init__(self, host: Host, bucket: Bucket) -> None:
        self._host = host
        self.bucket = bucket
        self._queue: deque[Entry] = deque()
        self._has_work = asyncio.Event()
        self._is_suspect = False
        self._busy = asyncio.Lock()
        self._applied = 0
        """The last record that was seen applied. What the log has beyond it is not on the disk yet,
        or in the queue: the node has not lost it."""
        self._away_since_ms: float | None = None
        self._is_full = False
        self._is_unconfirmed_told = False

    def enter(self, entry: Entry) -> None:
        if not self._queue:  # else it is at work and goes on
            self._has_work.set()
        self._queue.append(entry)

    def fail_late_ones(self, before_ms: float) -> None:
        for entry in self._queue:
            if entry.since_ms > before_ms:
                break
            entry.fail(NodeAway(f"{self.bucket.node.name} did not answer in time"))

    async def run(self) -> None:
        """Apply what comes, for ever, and send again what the node has lost meanwhile."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            if self._is_suspect:
                self._is_suspect = False
                await self.catch_up()
            while self._queue:
                async with self._busy:
                    await self._apply_group(self._next_group())

    async def catch_up(self) -> None:
        """Compare what the node has of this writer with what it once had."""
        last = self._applied
        if not last or self._queue:
            return
        try:
            epoch, _, applied = await read_position(self.bucket, self._host.name)
        except NodeAway as error:
            self.tell_away(error)
            return
        if self._is_behind(epoch, applied, last):
            async with self._busy:
                if await self._rewind(applied, last + 1):
                    self._see_applied(last)

    def idle_at(self) -> int:
        """The last record that was applied; 0 without any, and while at work."""
        return 0 if self._queue or self._busy.locked() else self._applied

    def see(self, epoch: bytes, applied: int, last: int) -> None:
        """Where the node stands, asked when this was idle at `last`."""
        if self._is_behind(epoch, applied, last):
            self._is_suspect = True
            self._has_work.set()

    def _is_behind(self, epoch: bytes, applied: int, last: int) -> bool:
        self._tell_back()
        self.bucket.epoch = epoch or self.bucket.epoch
        return bool(epoch) and self._is_declared() and applied < last

    def _next_group(self) -> list[Entry]:
        group = list(islice(self._queue, APPLY_MOST))
        while len(group) > 1 and size_of(group) > APPLY_BYTES:
            group.pop()
        return group

    async def _apply_group(self, group: list[Entry]) -> None:
        payloads = [entry.payload for entry in group]
        refused: dict[int, Code] = {}
        try:
            codes = await self._send(group[0].seq, payloads, "")
        except NodeFull:
            codes = await self._send_without_pushes(group, refused)
        except NodeRefused as error:
            if len(group) > 1:
                await self._apply_group(group[: len(group) // 2])
                return
            _log.error("record %d of %s is set aside: %s", group[0].seq, self.bucket.name, error)
            codes = await self._send(group[0].seq, [NOTHING], "")
            refused[group[0].seq] = Code.REFUSED
        reach("write.applied")
        await self._finish(group, codes, refused)

    async def _send_without_pushes(self, group: list[Entry], refused: dict[int, Code]) -> bytes:
        """The node is out of memory: what adds is refused for good, the rest goes through."""
        payloads = []
        for entry in group:
            is_push = entry.payload[1] == Op.PUSH
            payloads.append(NOTHING if is_push else entry.payload)
            if is_push:
                refused[entry.seq] = Code.FULL
        return await self._send(group[0].seq, payloads, "")

    async def _finish(self, group: list[Entry], codes: bytes, refused: dict[int, Code]) -> None:
        outcomes = [CODES[code] for code in codes]
        if refused or max(codes) >= Code.REFUSED:
            numbers = [entry.seq for entry in group]
            outcomes = [refused.get(seq, code) for seq, code in zip(numbers, outcomes, strict=True)]
            to_note = [
                (seq, code)
                for seq, code in zip(numbers, outcomes, strict=True)
                if code >= Code.REFUSED
            ]
            await self._host.note_refusals(self.bucket, to_note)
            reach("write.noted")
        self._see_applied(group[-1].seq)
        reach("write.counted")
        self._host.forget(group)
        for entry, code in zip(group, outcomes, strict=True):
            self._queue.popleft()
            if code is Code.REFUSED:
                entry.fail(RuntimeError("the queue refused this record; see the error log"))
            else:
                entry.resolve(code)

    async def _send(self, first: int, payloads: list[bytes], flags: str) -> bytes:
        """Have records applied, however often the node goes away meanwhile; their outcomes."""
        codes = b""
        waits_since_ms: float | None = None
        while payloads:
            await self._until_declared()
            try:
                answer = await self._host.store.apply(
                    self.bucket,
                    self._host.name,
                    first,
                    payloads,
                    flags=flags,
                    asks_replica=self._host.asks_replica,
                )
            except NodeAway as error:
                self.tell_away(error)
                await asyncio.sleep(0.1)
                continue
            self._tell_back()
            if answer.state == "EPOCH":
                await self._adopt(answer.epoch)
            elif answer.state == "GAP":
                await self._rewind(answer.position, first)
            elif not answer.is_confirmed:
                self._see_unconfirmed()
                flags += "" if "c" in flags else "c"
            else:
                self._is_unconfirmed_told = False
                done = answer.position - first + 1
                codes += answer.codes
                first, payloads = first + done, payloads[done:]
            if answer.state == "WAIT":
                waits_since_ms = waits_since_ms or clock.mono_ms()
                if clock.mono_ms() - waits_since_ms > AWAIT_OTHERS_MS and "f" not in flags:
                    flags += "f"
                await asyncio.sleep(0.02)
        return codes

    def _see_unconfirmed(self) -> None:
        if not self._is_unconfirmed_told:
            self._is_unconfirmed_told = True
            _log.error(
                "%s: writing waits: no replica has it on its disk (is one connected, with "
                "appendonly on?); DQ_DURABILITY=replicated wants that",
                self.bucket.name,
            )

    def _see_applied(self, seq: int) -> None:
        self._applied = seq
        self._host.log.high[self.bucket.index] = seq
        self._host.log.high[EPOCHS + self.bucket.index] = self.bucket.epoch_number

    def _is_declared(self) -> bool:
        high = self._host.log.high
        index = self.bucket.index
        return not high[index] or high[EPOCHS + index] == self.bucket.epoch_number

    async def _until_declared(self) -> None:
        """In a bucket that was begun anew it is for dq-redis-checker to say what stands there of
        this writer: what the journal has is put back from there and not sent again."""
        while self.bucket.epoch and not self._is_declared():
            await asyncio.sleep(0.02)
            try:
                epoch, _, _ = await read_position(self.bucket, self._host.name)
            except NodeAway as error:
                self.tell_away(error)
                continue
            self.bucket.epoch = epoch or self.bucket.epoch

    async def _adopt(self, epoch: bytes) -> None:
        """The bucket was begun anew, or is about to be; what it lacks shows as a gap."""
        if epoch and epoch != self.bucket.epoch:
            self.bucket.epoch = epoch
        else:
            await asyncio.sleep(0.05)

    async def _rewind(self, applied: int, until: int) -> bool:
        """Send again what lies after `applied` and before `until`; False when that can't be done
        now: the log lacks it, or the node has no memory for it."""
        name = self.bucket.name
        chunks = await asyncio.to_thread(
            missing_records, self._host.log.folder, self.bucket.index, applied, until
        )
        if not chunks or chunks[0][0] != applied + 1:
            await give_up(self._host.store, self.bucket, self._host.log.folder, applied + 1)
            return False
        total = sum(len(payloads) for _, payloads in chunks)
        if not self._is_full:
            _log.warning("%s had lost %d records of this process; they are sent again", name, total)
        try:
            for first, payloads in chunks:
                await self._send(first, payloads, "r")
        except NodeFull as error:
            await self._wait_for_memory(error)
            return False
        self._is_full = False
        return True

    async def _wait_for_memory(self, error: NodeFull) -> None:
        """What was accepted once can't be refused now; it waits, told about once."""
        if not self._is_full:
            self._is_full = True
            _log.error("%s: what it had lost can't be sent again yet: %s", self.bucket.name, error)
        await asyncio.sleep(1.0)

    def tell_away(self, error: NodeAway) -> None:
        """The node does not answer."""
        if self._away_since_ms is None:
            self._away_since_ms = clock.mono_ms()
            _log.warning("%s: writing waits: %s", self.bucket.name, error.detail)

    def _tell_back(self) -> None:
        if self._away_since_ms is not None:
            seconds = (clock.mono_ms() - self._away_since_ms) / 1000
            self._away_since_ms = None
            _log.warning("%s: writing goes on after %.1f s", self.bucket.name, seconds)
