"""Every transition of a job's state, one method a script; nothing else writes a bucket.

The states and arrows are drawn in lua/README.md. A method does one call and one call only: what is
to be repeated, and when, is decided by those who call. Redis being away, busy or read-only comes
out as NodeAway, a full memory as NodeFull; anything else Redis complains of is a mistake of ours
and comes out as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib import resources
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from dq.core.errors import NodeAway
from dq.queue.line import pack_args
from dq.queue.nodes import TIMEOUT_S, Bucket, ask, ask_all
from dq.queue.records import StoredJob, digest_of, pack, pack_job, unpack_job
from dq.queue.steady import SteadyClock

FORWARD_MOST = 500
LEASE_MOST = 500
LEASE_MS = 13_000
"""How long a lease lasts: the usual timeout of 3 s and 10 s more; longer callbacks extend it."""

LONGEST_LEASE_MS = 620_000
"""For a lease whose end was forgotten: longer than any callback may take."""
AUDIT_MOST = 500
CONFIRM_MS = (1, 5, 20, 50, 100, 200, 500, 1_000, 1_000)
"""How long one call waits for a replica, in steps: the master asks the replica for its position
once a step, and the replica by itself tells it once a second. 870 ms in one step, 70 in these."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` answers. `state`: OK, WAIT, GAP or EPOCH; `position` is the sequence up to
    which this writer's records are applied now. `is_confirmed`: a replica was not asked for, or
    has all of it on its disk."""

    state: str
    position: int = 0
    codes: bytes = b""
    epoch: bytes = b""
    is_confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Leased:
    """What `lease` answers. `state`: OK, BEHIND, HOLD or EPOCH. `wait_ms`: when to ask again
    where that is known, else -1."""

    state: str
    jobs: list[tuple[bytes, StoredJob]]
    now_ms: int = 0
    wait_ms: int = -1
    epoch: bytes = b""


@dataclass(frozen=True, slots=True)
class Rescued:
    """What `rescue` answers; the poisoned jobs, and those that were cancelled while they ran, are
    held by the caller under their tokens."""

    count: int
    poisoned: list[tuple[bytes, StoredJob]]


@dataclass(frozen=True, slots=True)
class Audited:
    """What `audit` answers. `missing`: places in the list that was asked for."""

    mended: int
    left_overdue: int
    missing: list[int]


class _Script:
    """A Lua file with what is prepended to it, called by its hash and loaded when missing."""

    def __init__(self, *names: str) -> None:
        folder = resources.files("dq.queue") / "lua"
        parts = ((folder / f"{name}.lua").read_text() for name in ("job", "bucket", *names))
        self.source = "\n".join(parts).encode()
        self.sha = sha1(self.source).hexdigest().encode()  # Redis names scripts so
        self._heads: dict[Bucket, bytes] = {}

    async def __call__(self, bucket: Bucket, *args: Any) -> Any:
        try:
            return await ask(bucket.node, self._run(bucket, args))
        except NoScriptError:
            run = bucket.node.client.execute_command
            command = ("EVAL", self.source, len(bucket.keys), *bucket.keys, *args)
            return await ask(bucket.node, run(*command))

    async def _run(self, bucket: Bucket, args: tuple[Any, ...]) -> Any:
        line, count = bucket.node.line, len(bucket.keys)
        if line is None:
            run = bucket.node.client.execute_command
            return await run("EVALSHA", self.sha, count, *bucket.keys, *args)
        head = self._heads.get(bucket)
        if head is None:
            head = self._heads[bucket] = pack_args(("EVALSHA", self.sha, count, *bucket.keys))
        return await line.call(b"*%d\r\n%b%b" % (3 + count + len(args), head, pack_args(args)))

    async def confirmed(self, bucket: Bucket, *args: Any) -> tuple[Any, bool]:
        """The same, and whether a replica has it on its disk now."""
        bound_s = TIMEOUT_S + sum(CONFIRM_MS) / 1000
        return await ask(bucket.node, self._apply_and_wait(bucket, *args), bound_s)

    async def _apply_and_wait(self, bucket: Bucket, *args: Any) -> tuple[Any, bool]:
        """WAITAOF speaks of what its own connection has written: both go through one. The script
        goes along in full, as one that turns out to be missing would cost a wait for nothing."""
        pipe = bucket.node.client.pipeline(transaction=False)
        pipe.execute_command("EVAL", self.source, len(bucket.keys), *bucket.keys, *args)
        for step_ms in CONFIRM_MS:
            pipe.execute_command("WAITAOF", 0, 1, step_ms)
        answer, *_, copies = await pipe.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(copies, ResponseError):
            raise NodeAway(f"{bucket.node.name} can't say what its replicas have: {copies}")
        return answer, copies[1] > 0


class Store:
    """The transitions. `now_ms` is None but in tests: then the node's own clock decides."""

    def __init__(self) -> None:
        changes = ("changes", "push", "cancel", "move", "settle", "runs")
        self._apply = _Script(*changes, "apply")
        self._forward = _Script("forward")
        self._lease = _Script("returns", "lease")
        self._extend = _Script("extend")
        self._give_back = _Script("returns", "give_back")
        self._rescue = _Script("rescue")
        self._limit = _Script("limit")
        self._found = _Script("found")
        self._reassert = _Script("reassert")
        self._restore = _Script("restore")
        self._wipe = _Script("wipe")
        self._find = _Script("find")
        self._audit = _Script("audit")
        self._tally = _Script("tally")

    async def apply(
        self,
        bucket: Bucket,
        writer: bytes,
        first: int,
        records: Sequence[bytes],
        *,
        flags: str = "",
        now_ms: int | None = None,
        asks_replica: bool = False,
    ) -> Applied:
        """Push, cancel, move and settle: records `first`, `first + 1` … of a writer's log.

        `flags`: r for a replay, f to wait for no other writer any more, c when the same was
        applied before but not confirmed. `asks_replica`: wait a moment for one to have it.
        """
        args = (_now(now_ms), bucket.epoch, writer, flags, first, *records)
        is_confirmed = True
        if asks_replica:
            answer, is_confirmed = await self._apply.confirmed(bucket, *args)
        else:
            answer = await self._apply(bucket, *args)
        state = answer[0].decode()
        if state == "EPOCH":
            return Applied(state, epoch=answer[1])
        codes = answer[2] if len(answer) > 2 else b""
        return Applied(state, answer[1], codes, is_confirmed=is_confirmed)

    async def forward(
        self,
        bucket: Bucket,
        now_ms: int | None = None,
        limit: int = FORWARD_MOST,
        steady: SteadyClock | None = None,
    ) -> tuple[int, float]:
        """Delayed -> ready for what is due: how many, and milliseconds to the next or -1.

        `steady`: what the node's clock is held against; (0, 0) when it has just jumped."""
        by_ms, latest = _reckon(steady, now_ms)
        answer = await self._forward(bucket, _now(by_ms), limit, latest)
        moved, due_ms, at_ms, own_us = answer
        if _has_jumped(steady, moved, own_us // 1000 if now_ms is None else now_ms):
            return 0, 0
        us = own_us % 1000 if by_ms is None else 0
        return moved, -1 if due_ms < 0 else max(0, due_ms - at_ms - us / 1000)

    async def lease(
        self,
        bucket: Bucket,
        consumer: bytes,
        first_token: int,
        want: int,
        *,
        last_token: int = 0,
        passed_over: Sequence[str] = (),
        high: Sequence[tuple[bytes, int]] = (),
        lease_ms: int = LEASE_MS,
        now_ms: int | None = None,
    ) -> Leased:
        """Ready -> running for up to `want` (<= LEASE_MOST) jobs.

        `last_token`: the last that this consumer was given by this bucket, in this epoch, or has
        said again in it. What it was given after that it never heard of, so it becomes ready again.
        `high`: for writers known here, the highest sequence ever seen applied in this bucket.
        """
        positions: list[Any] = [part for pair in high for part in pair]
        answer = await self._lease(
            bucket,
            _now(now_ms),
            bucket.epoch,
            consumer,
            first_token,
            want,
            lease_ms,
            last_token,
            len(passed_over),
            *passed_over,
            *positions,
        )
        state = answer[0].decode()
        if state == "EPOCH":
            return Leased(state, [], epoch=answer[1])
        if state != "OK":
            return Leased(state, [], wait_ms=answer[1] if state == "HOLD" else -1)
        return Leased(state, _with_tokens(answer[3:], consumer, first_token), answer[1], answer[2])

    async def extend(self, bucket: Bucket, leases: Sequence[tuple[bytes, bytes, int]]) -> int:
        """Leases (digest, token, until ms) last longer; how many were still the caller's."""
        kept: int = await self._extend(bucket, *(part for lease in leases for part in lease))
        return kept

    async def give_back(
        self, bucket: Bucket, leases: Sequence[tuple[bytes, bytes]], now_ms: int | None = None
    ) -> int:
        """Running -> ready for leases (digest, token) whose callback was never begun."""
        pairs = (part for lease in leases for part in lease)
        kept: int = await self._give_back(bucket, _now(now_ms), *pairs)
        return kept

    async def rescue(
        self,
        bucket: Bucket,
        caller: bytes,
        first_token: int,
        *,
        consumer: bytes = b"",
        limit: int = FORWARD_MOST,
        most_losses: int = 3,
        now_ms: int | None = None,
        steady: SteadyClock | None = None,
    ) -> Rescued:
        """Running -> ready for leases that ran out, or for all of a consumer known to be dead.

        `steady`: as with `forward`; none ran out by a clock that has jumped."""
        is_held = steady is not None and steady.is_held
        now_ms, latest = _reckon(steady, now_ms)
        caller_args = (most_losses, caller, first_token, LEASE_MS)
        answer = await self._rescue(bucket, _now(now_ms), consumer, limit, *caller_args, latest)
        if _has_jumped(steady, answer[0], None if is_held else answer[1]):
            return Rescued(0, [])
        return Rescued(answer[0], _with_tokens(answer[2:], caller, first_token))

    async def limit(
        self, bucket: Bucket, revision: int, limits: dict[str, tuple[int, int, float]]
    ) -> bool:
        """Which topics are held or limited: (held, concurrency or 0, rate a second or 0).

        `revision`: of the topics that say so; an older one changes nothing, False then."""
        pairs: list[Any] = []
        for topic, values in limits.items():
            pairs += [topic, pack(list(values))]
        return bool(await self._limit(bucket, revision, *pairs))

    async def found(
        self,
        bucket: Bucket,
        epoch: bytes,
        state: str = "ready",
        hold_ms: int = 0,
        now_ms: int | None = None,
    ) -> tuple[bytes, str]:
        """Begin a bucket that is fresh or was wiped; answers its epoch and state.

        `epoch`: 16 fresh random hex digits. `hold_ms`: for so long nothing is leased.
        """
        answer = await self._found(bucket, _now(now_ms), epoch, state, hold_ms)
        return answer[0], answer[1].decode()

    async def reassert(
        self,
        bucket: Bucket,
        consumer: bytes,
        last_token: int,
        leases: Sequence[tuple[StoredJob, bytes, int]],
    ) -> int:
        """Leases (job, token, until ms) that the bucket may have lost; how many stand now."""
        parts: list[Any] = []
        for job, token, until_ms in leases:
            version = job.version
            digest = digest_of(job.topic, job.id)
            parts += [digest, token, version.stamp, version.writer, job.topic, until_ms]
        kept: int = await self._reassert(bucket, consumer, last_token, *parts)
        return kept

    async def restore(
        self, bucket: Bucket, jobs: Sequence[StoredJob], now_ms: int | None = None
    ) -> int:
        """Unfinished jobs from the journal, where the bucket has lost them; how many it had."""
        parts = [part for job in jobs for part in (digest_of(job.topic, job.id), pack_job(job))]
        restored: int = await self._restore(bucket, _now(now_ms), *parts)
        return restored

    async def audit(
        self,
        bucket: Bucket,
        digests: Sequence[bytes],
        *,
        overdue: bool = True,
        now_ms: int | None = None,
    ) -> Audited:
        """Compare up to AUDIT_MOST unfinished jobs with what stands here, and schedule again what
        stands nowhere; with `overdue` False not what is due already."""
        answer = await self._audit(bucket, _now(now_ms), int(overdue), LONGEST_LEASE_MS, *digests)
        return Audited(answer[0], answer[1], [place - 1 for place in answer[2:]])

    async def is_whole(self, bucket: Bucket) -> bool:
        """Whether the counts add up; False when a key of it was deleted or thrown away."""
        return bool(await self._tally(bucket))

    async def wipe(self, bucket: Bucket) -> bool:
        """Give up a bucket that has fallen back further than the logs reach; it is begun anew and
        restored from the journal."""
        return bool(await self._wipe(bucket, bucket.epoch))

    async def find(
        self, bucket: Bucket, topic: str, id_: str, high: Sequence[tuple[bytes, int]] = ()
    ) -> tuple[StoredJob, str] | None:
        """An unfinished job and its state: delayed, ready or running.

        `high`: writers, and up to where they were seen applied. Raises NodeAway for a job that is
        not there while the bucket is being restored, or lacks something of these writers.
        """
        known = [item for pair in high for item in pair]
        raw, state, begun = await self._find(bucket, 1, digest_of(topic, id_), *known)
        if raw is None and begun != b"ready":
            raise NodeAway(f"{bucket.name} is being restored")
        if raw is None:
            return None
        job = unpack_job(raw)
        return (job, state.decode()) if (job.topic, job.id) == (topic, id_) else None


def _reckon(steady: SteadyClock | None, now_ms: int | None) -> tuple[int | None, int | bytes]:
    """The time to go by, and the latest that it can be."""
    if steady is None:
        return now_ms, b""
    if (held_ms := steady.now_ms()) is not None:
        return held_ms, b""
    return now_ms, steady.latest_ms() or b""


def _has_jumped(steady: SteadyClock | None, answer: int, at_ms: int | None) -> bool:
    """`at_ms`: what the node's own clock said; None where it was not asked."""
    if steady is not None and at_ms is not None:
        (steady.see if answer >= 0 else steady.see_jump)(at_ms)
    return answer < 0


def _now(now_ms: int | None) -> int | str:
    return "" if now_ms is None else now_ms


def _with_tokens(
    packed: Sequence[bytes], owner: bytes, first_token: int
) -> list[tuple[bytes, StoredJob]]:
    return [
        (owner + (first_token + i).to_bytes(8, "big"), unpack_job(raw))
        for i, raw in enumerate(packed)
    ]


async def read_position(bucket: Bucket, writer: bytes) -> tuple[bytes, str, int]:
    """A bucket's epoch, its state, and up to where this writer's records are applied in it."""
    question = ("HMGET", bucket.keys[0], "epoch", "state", b"h" + writer)
    ((epoch, state, applied),) = await ask_all(bucket.node, [question])
    return epoch or b"", (state or b"").decode(), int(applied or 0)
