"""The producers' door: push, cancel, reschedule and find a job, wherever it lives.

A job's place is chosen once, when it is pushed, and found again by looking: an unfinished job is
where its record is, never where a formula says. Its topic decides the bucket within a node (so a
topic's limits are counted in one place); its topic and id rank the nodes, for a topic with a limit
the topic alone. The first node of that ranking takes the job, unless another one has it already;
nodes that are drained come last, so they keep what they have and get nothing new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Literal
from zlib import crc32

import msgspec

from dq.core.errors import DuplicateJob, NodeAway, NodeFull
from dq.core.faults import reach
from dq.log.neighbours import Neighbours
from dq.queue import records
from dq.queue.nodes import Bucket, Node, Nodes
from dq.queue.patience import Patience
from dq.queue.records import PRIORITIES, Code, StoredJob
from dq.queue.writer import Writer

_log = logging.getLogger(__name__)

MOST_TRIES = 8
"""How often a change is tried again because the job was replaced in the meantime."""

_DONE: Mapping[Code, Literal["created", "replaced"]] = {
    Code.CREATED: "created",
    Code.REPLACED: "replaced",
}


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to be pushed. `absolute`: its due time was given as an instant, not as a delay.
    `timeout_ms` 0: the topic's. `priority`, `on_duplicate`: an index into records' names."""

    topic: str
    id: str
    body: bytes
    due_ms: int
    absolute: bool = False
    priority: int = 1
    timeout_ms: int = 0
    key: str = ""
    on_duplicate: Literal["replace", "keep", "reject"] = "replace"


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """What became of a push."""

    result: Literal["created", "replaced", "kept"]
    due_ms: int
    state: str = "delayed"


Told = Callable[[Pushed | Exception], None]
"""Is told what became of a push, or why it was refused."""


class JobView(msgspec.Struct, frozen=True):
    """An unfinished job as a producer may see it. `attempt`: attempts begun so far."""

    topic: str
    id: str
    state: str
    due_ms: int
    attempt: int
    body: bytes
    priority: str
    key: str
    created_ms: int
    version: bytes


class Schedule:
    """Changes jobs through one process's writer."""

    def __init__(
        self,
        writer: Writer,
        nodes: Nodes,
        is_limited: Callable[[str], bool] = lambda topic: False,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`neighbours`: the logs of this host, looked at by somebody once in a while; what a node
        has lost of them is not taken for unknown."""
        self._writer = writer
        self._nodes = nodes
        self._is_limited = is_limited
        self._neighbours = neighbours
        self._patience = Patience()
        self._looking: set[asyncio.Task[Pushed]] = set()

    def push(self, job: NewJob) -> asyncio.Future[Pushed]:
        """Accept a job, begun at once: when the future has its result it will be called back.

        The future raises DuplicateJob (on_duplicate=reject), NodeAway, Overloaded, DiskFull,
        NodeFull.
        """
        pushed: asyncio.Future[Pushed] = asyncio.get_running_loop().create_future()
        self.begin_push(job, partial(_resolve, pushed))
        return pushed

    def begin_push(self, job: NewJob, told: Told) -> None:
        """The same, for those who push many: `told` is called once, later or at once. Nearly every
        push has nothing to look up first, and costs neither a task nor a future."""
        if job.on_duplicate != "replace" or len(self._nodes.all) != 1:
            self._look(self._push(job), told)
            return
        try:
            reach("push.validated")
            bucket = _bucket_of(self._nodes.all[0], job.topic)
            self._writer.begin(bucket, self._record(job), _Pushing(self, job, told))
        except Exception as error:
            told(error)

    async def _push(self, job: NewJob, code: Code | None = None) -> Pushed:
        """`code`: what came of a first try."""
        for _ in range(MOST_TRIES):
            if code is None:
                bucket, present = await self._place(job)
                if present is not None and job.on_duplicate == "reject":
                    raise DuplicateJob(job.topic, job.id)
                if present is not None and job.on_duplicate == "keep":
                    return Pushed("kept", present.due_ms)
                reach("push.validated")
                code = await self._writer.submit(bucket, self._record(job))
                reach("push.answered")
            pushed = await self._see_outcome(job, code)
            if pushed is not None:
                return pushed
            code = None
        raise NodeAway(f"{job.topic}/{job.id} is being replaced all the time")

    async def _see_outcome(self, job: NewJob, code: Code) -> Pushed | None:
        """What a push has come to; None: it is to be tried again."""
        if code in _DONE:
            return Pushed(_DONE[code], job.due_ms)
        if code is Code.FULL:
            raise NodeFull()
        if code is Code.REJECTED:
            raise DuplicateJob(job.topic, job.id)
        if code is Code.COLLIDED:
            raise DuplicateJob(job.topic, f"{job.id} (its hash is another job's: rename it)")
        found = await self.locate(job.topic, job.id)
        if code is Code.KEPT:
            return Pushed("kept", found[1].due_ms if found else job.due_ms)
        if found:  # Code.BEHIND: the other host's clock is ahead of ours
            self._writer.observe(found[1].version.stamp)
        return None

    def go_on(self, job: NewJob, code: Code, told: Told) -> None:
        """A first try came to what takes a closer look: `told` is told of its end."""
        self._look(self._push(job, code), told)

    def _look(self, pushing: Coroutine[Any, Any, Pushed], told: Told) -> None:
        task = asyncio.get_running_loop().create_task(pushing)
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)
        task.add_done_callback(partial(_tell_end, told))

    def _record(self, job: NewJob) -> list[Any]:
        return records.push(
            self._writer.next_stamp(),
            topic=job.topic,
            id_=job.id,
            body=job.body,
            due_ms=job.due_ms,
            absolute=job.absolute,
            priority=job.priority,
            timeout_ms=job.timeout_ms,
            key=job.key,
            on_duplicate=records.ON_DUPLICATE.index(job.on_duplicate),
        )

    async def cancel(self, topic: str, id_: str) -> Literal["cancelled", "running"] | None:
        """No callback any more; "running": this one can't be called back, but no retry follows.
        None: no unfinished job of that name."""
        for _ in range(MOST_TRIES):
            found = await self.locate(topic, id_)
            if found is None:
                return None
            bucket, job, _ = found
            code = await self._writer.submit(bucket, records.cancel(self._writer.next_stamp(), job))
            if code is Code.CANCELLED:
                return "cancelled"
            if code is Code.RUNNING:
                return "running"
        raise NodeAway(f"{topic}/{id_} is being replaced all the time")

    async def reschedule(
        self, topic: str, id_: str, due_ms: int
    ) -> Literal["delayed", "running"] | None:
        """Another due time. "running": too late, nothing was changed. None: not there."""
        for _ in range(MOST_TRIES):
            found = await self.locate(topic, id_)
            if found is None:
                return None
            bucket, job, _ = found
            self._writer.observe(job.changed)
            stamp = self._writer.next_stamp()
            code = await self._writer.submit(bucket, records.move(stamp, job, due_ms))
            if code is Code.MOVED:
                return "delayed"
            if code is Code.BUSY:
                return "running"
        raise NodeAway(f"{topic}/{id_} is being replaced all the time")

    async def find(self, topic: str, id_: str) -> JobView | None:
        """An unfinished job, or None. Raises NodeAway when it could be on a node that is away."""
        found = await self.locate(topic, id_)
        if found is None:
            return None
        _, job, state = found
        return JobView(
            topic=job.topic,
            id=job.id,
            state=state,
            due_ms=job.due_ms,
            attempt=job.retries + (state == "running"),
            body=job.body,
            priority=PRIORITIES[job.priority],
            key=job.key,
            created_ms=job.created_ms,
            version=job.version.key,
        )

    async def locate(self, topic: str, id_: str) -> tuple[Bucket, StoredJob, str] | None:
        """Where an unfinished job is. Raises NodeAway when a node that may have it is away."""
        buckets = self._buckets_of(topic, id_)
        answers = await asyncio.gather(
            *(self._find_in(bucket, topic, id_) for bucket in buckets),
            return_exceptions=True,
        )
        away: BaseException | None = None
        for bucket, answer in zip(buckets, answers, strict=True):
            if isinstance(answer, BaseException):
                away = answer
            elif answer is not None:
                return bucket, *answer
        if away is not None:
            raise away
        return None

    async def _find_in(self, bucket: Bucket, topic: str, id_: str) -> tuple[StoredJob, str] | None:
        neighbours = self._neighbours
        high = neighbours.high_of(bucket.name) if neighbours else ()
        was_sure = neighbours is None or neighbours.is_sure(bucket.name)
        look = self._writer.store.find(bucket, topic, id_, high)
        found = await self._patience.wait(bucket.node, look)
        if found is None and not was_sure:
            raise NodeAway(f"{bucket.name} may lack something after a power cut")
        return found

    async def _place(self, job: NewJob) -> tuple[Bucket, StoredJob | None]:
        """The bucket for a push, and the job that is there when that matters before the log."""
        buckets = self._buckets_of(job.topic, job.id)
        if len(buckets) == 1 and job.on_duplicate == "replace":
            return buckets[0], None
        try:
            found = await self.locate(job.topic, job.id)
        except NodeAway:
            found = None
        if found is None:
            return buckets[0], None
        return found[0], None if found[1].is_closed else found[1]

    def _buckets_of(self, topic: str, id_: str) -> list[Bucket]:
        nodes = self._nodes.all
        if len(nodes) > 1:
            key = topic if self._is_limited(topic) else f"{topic}\0{id_}"
            nodes = sorted(nodes, key=lambda node: (node.is_draining, _rank(node, key)))
        return [_bucket_of(node, topic) for node in nodes]


class _Pushing:
    """Waits for the outcome of a push's first try, nearly always the last one."""

    __slots__ = ("_is_done", "_job", "_schedule", "_told")

    def __init__(self, schedule: Schedule, job: NewJob, told: Told) -> None:
        self._schedule = schedule
        self._job = job
        self._told = told
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, code: Code) -> None:
        try:
            reach("push.answered")
        except Exception as error:
            self.set_exception(error)
            return
        self._is_done = True
        if result := _DONE.get(code):
            self._tell(Pushed(result, self._job.due_ms))
        else:
            self._schedule.go_on(self._job, code, self._told)

    def set_exception(self, error: Exception) -> None:
        self._is_done = True
        self._tell(error)

    def _tell(self, outcome: Pushed | Exception) -> None:
        """Others' records wait behind this one: whoever fails to hear must not stop them."""
        try:
            self._told(outcome)
        except Exception:
            _log.exception("%s/%s: its outcome could not be told", self._job.topic, self._job.id)


def _tell_end(told: Told, pushing: asyncio.Task[Pushed]) -> None:
    if pushing.cancelled():
        told(NodeAway("dq is stopping"))
    else:
        error = pushing.exception()
        told(error if isinstance(error, Exception) else pushing.result())


def _resolve(pushed: asyncio.Future[Pushed], outcome: Pushed | Exception) -> None:
    if pushed.done():
        return
    if isinstance(outcome, Exception):
        pushed.set_exception(outcome)
    else:
        pushed.set_result(outcome)


def _bucket_of(node: Node, topic: str) -> Bucket:
    return node.buckets[crc32(topic.encode()) % len(node.buckets)]


def _rank(node: Node, key: str) -> bytes:
    return blake2b(f"{node.name}\0{key}".encode(), digest_size=8).digest()
