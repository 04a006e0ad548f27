"""How a process changes jobs: log first, then apply in order, then answer.

    submit -> [pending] -> append + one fdatasync for all that wait -> [a lane a bucket] -> apply

What arrives while a sync or an apply is under way makes the next group; nothing waits for a timer.
A lane sends its records strictly in order, each exactly once in effect: the script remembers the
last sequence applied and refuses gaps, so a call that was cut is simply repeated, and whatever a
node is found to lack is read from the log and sent again (`_rewind`). A record that the script
refused is noted in the log before anyone is answered, or a replay would do it after all.

Invariant: a submit that returned is on disk (or will be within 50 ms, where lazy) and in Redis.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from dq.core import clock
from dq.core.errors import DiskFull, NodeAway, NodeFull, Overloaded
from dq.core.faults import reach
from dq.core.pace import next_turn
from dq.log.frames import NOTE, encode_frame
from dq.log.log import Log, LogBroken
from dq.log.syncing import Syncing
from dq.queue.lane import Answer, Entry, Lane, size_of
from dq.queue.nodes import Bucket, Node
from dq.queue.positions import read_positions
from dq.queue.records import Code, note, pack
from dq.queue.store import Store

_log = logging.getLogger(__name__)

LAZY_SYNC_S = 0.05
NOTE_AGAIN_S = 0.2
LATE_EACH_S = 0.25
WATCH_EACH_S = 1.0
ANSWER_WITHIN_MS = 2_000
CONFIRMED_WITHIN_MS = 5_000
"""The same where a replica is asked."""
MOST_WAITING = 50_000
MOST_WAITING_BYTES = 256 * 1024 * 1024
LOG_BROKEN_EXIT = 4


class Writer:
    """One process's way to change jobs. Made in the process that uses it, after any fork."""

    def __init__(
        self,
        log: Log,
        store: Store,
        buckets: Sequence[Bucket],
        *,
        lazy: bool = False,
        asks_replica: bool = False,
        answer_within_ms: int | None = ANSWER_WITHIN_MS,
        on_broken: Callable[[], None] | None = None,
    ) -> None:
        """`lazy`: answer before the disk has it; it is synced within 50 ms (outcomes of
        callbacks, and pushes at DQ_DURABILITY=memory). `asks_replica`: answer only when a replica
        has it too (DQ_DURABILITY=replicated). `answer_within_ms`: how long a submit
        waits for a node that is away before NodeAway; None: for ever. `on_broken`: what to do
        instead of ending the process when the log can't be synced."""
        self.log = log
        self._store = store
        self._lazy = lazy
        self.asks_replica = asks_replica
        self._answer_within_ms = answer_within_ms
        self._on_broken = on_broken or (lambda: os._exit(LOG_BROKEN_EXIT))
        self._lanes = {bucket.index: Lane(self, bucket) for bucket in buckets}
        self._pending: list[Entry] = []
        self._has_pending = asyncio.Event()
        self._disk = Syncing(log.sync)
        self._seqs: dict[int, int] = {}
        self._stamp = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._lazy_sync: asyncio.Task[None] | None = None
        self._is_sync_due = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> bytes:
        """The 8 bytes of this writer's log."""
        return self.log.writer

    @property
    def store(self) -> Store:
        """The scripts that this writer applies with."""
        return self._store

    def start(self) -> None:
        """Begin to work; call in the loop that will use the writer."""
        work = [self._flush_forever(), self._fail_late_ones()]
        work += [lane.run() for lane in self._lanes.values()]
        work += [self._watch(node, lanes) for node, lanes in self._lanes_by_node().items()]
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]
        for task in self._tasks:
            task.add_done_callback(self._see_end)

    def _see_end(self, task: asyncio.Task[None]) -> None:
        """A writer without one of its tasks only looks alive: the process ends instead."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("this process ends, its writer failed", exc_info=error)
            self._on_broken()

    async def close(self) -> None:
        """Stop after what is under way; what could not be applied is left to the heir."""
        deadline = clock.mono_ms() + ANSWER_WITHIN_MS
        while self._waiting and clock.mono_ms() < deadline:
            await asyncio.sleep(0.005)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lazy_sync is not None:
            await self._lazy_sync
        self._disk.close()
        self.log.close()

    def next_stamp(self) -> int:
        """Unix microseconds, never twice the same."""
        self._stamp = max(self._stamp + 1, clock.now_us())
        return self._stamp

    def observe(self, stamp: int) -> None:
        """Another host's clock is ahead: the next stamps come after `stamp`."""
        self._stamp = max(self._stamp, stamp)

    async def submit(self, bucket: Bucket, record: list[Any]) -> Code:
        """Log and apply one record; the outcome.

        Raises Overloaded, DiskFull and NodeFull (nothing was accepted), NodeAway (the record is
        in the log and will be applied when the node is back).
        """
        answer: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self.begin(bucket, record, answer)
        code = await answer
        if code is Code.FULL:
            raise NodeFull()
        return code

    async def catch_up(self, bucket: Bucket) -> None:
        """Have a look whether the node lacks something of this writer's, and send it again."""
        await self._lanes[bucket.index].catch_up()

    def begin(self, bucket: Bucket, record: list[Any], answer: Answer) -> None:
        """Like `submit`, but `answer` is told the outcome later, FULL among others. Raises
        Overloaded at once."""
        payload = pack(record)
        if self._waiting >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES:
            raise Overloaded()
        self._enter(Entry(self._lanes[bucket.index], payload, answer, clock.mono_ms()))

    def _enter(self, entry: Entry) -> None:
        if not self._pending:
            self._has_pending.set()
        self._pending.append(entry)
        self._waiting += 1
        self._waiting_bytes += len(entry.payload)

    async def _flush_forever(self) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            group, self._pending = self._pending, []
            try:
                self._append(group)
                reach("write.appended")
                await self._sync()
            except DiskFull as error:
                self._refuse(group, error)
            except LogBroken as error:
                _log.critical("this process ends, its log is broken: %s", error)
                self._refuse(group, DiskFull())
                self._on_broken()
                return
            else:
                self._hand_over(group)

    def _append(self, group: list[Entry]) -> None:
        seqs = dict(self._seqs)
        frames = []
        for entry in group:
            number = NOTE
            if entry.lane is not None:
                number = entry.lane.bucket.index
                entry.seq = seqs[number] = seqs.get(number, 0) + 1
            frames.append(encode_frame(number, entry.seq, entry.payload))
        self.log.append(b"".join(frames))
        self._seqs = seqs

    async def _sync(self) -> None:
        if not self._lazy:
            await self._disk.begin()
            reach("write.synced")
        elif not self._is_sync_due:
            self._is_sync_due = True
            self._lazy_sync = asyncio.create_task(self._sync_soon())

    async def _sync_soon(self) -> None:
        await asyncio.sleep(LAZY_SYNC_S)
        self._is_sync_due = False  # what is appended from here on may be too late for this one
        try:
            await self._disk.begin()
            reach("write.synced")
        except LogBroken as error:
            _log.critical("this process ends, its log is broken: %s", error)
            self._on_broken()

    def _refuse(self, group: list[Entry], error: Exception) -> None:
        self.forget(group)
        for entry in group:
            entry.fail(error)

    def _hand_over(self, group: list[Entry]) -> None:
        for entry in group:
            if entry.lane is not None:
                entry.lane.enter(entry)
            else:
                self.forget([entry])
                entry.resolve(Code.SKIPPED)

    def last_seq(self, bucket: Bucket) -> int:
        """The sequence of the newest record in the log for a bucket, 0 without any."""
        return self._seqs.get(bucket.index, 0)

    def forget(self, entries: Sequence[Entry]) -> None:
        """They no longer count as waiting."""
        self._waiting -= len(entries)
        self._waiting_bytes -= size_of(entries)

    async def note_refusals(self, bucket: Bucket, refused: list[tuple[int, Code]]) -> None:
        """Put into the log which sequences were refused, and wait for the disk; as long as it is
        full, too: nobody may be answered what a replay could undo."""
        while True:
            notes = [note(self.next_stamp(), bucket.index, seq, code) for seq, code in refused]
            try:
                await asyncio.gather(*(self._enter_note(record) for record in notes))
                return
            except DiskFull:
                await asyncio.sleep(NOTE_AGAIN_S)

    def _enter_note(self, record: list[Any]) -> asyncio.Future[Code]:
        answer: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self._enter(Entry(None, pack(record), answer, clock.mono_ms()))
        return answer

    async def _fail_late_ones(self) -> None:
        """Whoever waited too long for a node is told so; the record stays."""
        while self._answer_within_ms is not None:
            await next_turn(LATE_EACH_S if self._waiting else WATCH_EACH_S)
            for lane in self._lanes.values():
                lane.fail_late_ones(clock.mono_ms() - self._answer_within_ms)

    def _lanes_by_node(self) -> dict[Node, list[Lane]]:
        lanes: dict[Node, list[Lane]] = {}
        for lane in self._lanes.values():
            lanes.setdefault(lane.bucket.node, []).append(lane)
        return lanes

    async def _watch(self, node: Node, lanes: list[Lane]) -> None:
        """See that the node has lost nothing: of lanes that are at work it shows by itself."""
        while True:
            await next_turn(WATCH_EACH_S)
            idle = [(lane, last) for lane in lanes if (last := lane.idle_at())]
            if not idle:
                continue
            try:
                buckets = [lane.bucket for lane, _ in idle]
                positions = await read_positions(node, buckets, self.name)
            except NodeAway as error:
                for lane, _ in idle:
                    lane.tell_away(error)
                continue
            for (lane, last), (epoch, _, applied) in zip(idle, positions, strict=True):
                lane.see(epoch, applied, last)
