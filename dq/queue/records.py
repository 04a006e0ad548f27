"""What a record of a log means: the operations that change jobs, as msgpack arrays.

A record is packed once; the same bytes go into the log and, as they are, to the `apply` script,
so the order of the fields here and in lua/*.lua is one contract. Only the old msgpack string types
are used: Redis's own decoder knows no others. Each record carries a stamp, unix microseconds,
which never repeats within a writer: (stamp, writer) names a version of a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Any

import msgpack

PRIORITIES = ("high", "normal", "low")
ON_DUPLICATE = ("replace", "keep", "reject")


class Op(IntEnum):
    """The first field of each record."""

    NOTHING = 0
    PUSH = 1
    CANCEL = 2
    MOVE = 3
    SETTLE = 4
    NOTE = 5


class Verdict(IntEnum):
    """How an attempt ended, in a SETTLE record."""

    DONE = 0
    RETRY = 1
    DEAD = 2


class Code(IntEnum):
    """What the `apply` script answers for each record. From REFUSED on nothing was changed, and
    the writer notes so in its log, or a replay would do what was refused."""

    SKIPPED = 0
    CREATED = 1
    REPLACED = 2
    CANCELLED = 3
    RUNNING = 4
    MOVED = 5
    SETTLED = 6
    REFUSED = 50
    KEPT = 51
    REJECTED = 52
    SWALLOWED = 53
    COLLIDED = 54
    CHANGED = 55
    ABSENT = 56
    STALE = 57
    BUSY = 58
    BEHIND = 59
    FULL = 60


@dataclass(frozen=True, slots=True)
class Version:
    """One push of a job. Settling, cancelling and moving name the version that they mean."""

    stamp: int
    writer: bytes
    seq: int

    @property
    def key(self) -> bytes:
        """16 bytes that sort as versions do: by stamp, ties by writer."""
        return self.stamp.to_bytes(8, "big") + self.writer


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as its bucket holds it. `changed`: the stamp of its last move or retry, or 0.
    `is_closed`: it was cancelled while it ran, no retry follows."""

    version: Version
    due_ms: int
    retries: int
    priority: int
    timeout_ms: int
    topic: str
    id: str
    key: str
    body: bytes
    changed: int = 0
    is_closed: bool = False

    @property
    def created_ms(self) -> int:
        return self.version.stamp // 1000


def digest_of(topic: str, id_: str) -> bytes:
    """The 8 bytes by which a bucket knows a job; the full names are compared on every write."""
    return blake2b(f"{topic}\0{id_}".encode(), digest_size=8).digest()


_packer = msgpack.Packer(use_bin_type=False)


def pack(record: list[Any]) -> bytes:
    """The bytes of a record."""
    packed: bytes = _packer.pack(record)
    return packed


def unpack(payload: bytes) -> list[Any]:
    """A record's fields, strings as bytes."""
    fields: list[Any] = msgpack.unpackb(payload, raw=True)
    return fields


def unpack_job(payload: bytes) -> StoredJob:
    """The job in a bucket's hash (written by lua/bucket.lua's `save`)."""
    fields = unpack(payload)
    stamp, writer, seq, due, retries, priority, timeout, topic, id_, key, body = fields[:11]
    return StoredJob(
        version=Version(stamp, writer, seq),
        due_ms=due,
        retries=retries,
        priority=priority,
        timeout_ms=timeout,
        topic=topic.decode(),
        id=id_.decode(),
        key=key.decode(),
        body=body,
        changed=fields[12],
        is_closed=fields[11] == 1,
    )


def pack_job(job: StoredJob) -> bytes:
    """A job as a bucket's hash holds it; the reverse of `unpack_job`."""
    version = job.version
    return pack(
        [
            version.stamp,
            version.writer,
            version.seq,
            job.due_ms,
            job.retries,
            job.priority,
            job.timeout_ms,
            job.topic,
            job.id,
            job.key,
            job.body,
            int(job.is_closed),
            job.changed,
        ]
    )


NOTHING = pack([Op.NOTHING])
"""Stands in for a record that was refused, so that the sequence stays dense when it is resent."""


def push(
    stamp: int,
    *,
    topic: str,
    id_: str,
    body: bytes,
    due_ms: int,
    absolute: bool,
    priority: int,
    timeout_ms: int,
    key: str,
    on_duplicate: int,
) -> list[Any]:
    """A new job, or a new version of one. `absolute`: the due time was given as an instant."""
    return [
        Op.PUSH,
        stamp,
        digest_of(topic, id_),
        due_ms,
        priority,
        timeout_ms,
        topic,
        id_,
        key,
        body,
        on_duplicate,
        int(absolute),
    ]


def _about(op: Op, stamp: int, job: StoredJob) -> list[Any]:
    version = job.version
    digest = digest_of(job.topic, job.id)
    return [op, stamp, digest, version.stamp, version.writer, version.seq, job.topic, job.id]


def cancel(stamp: int, job: StoredJob) -> list[Any]:
    """No callback of this version any more; one that runs is not retried."""
    return _about(Op.CANCEL, stamp, job)


def move(stamp: int, job: StoredJob, due_ms: int) -> list[Any]:
    """Another due time for this version."""
    return [*_about(Op.MOVE, stamp, job), due_ms]


def settle(
    stamp: int, job: StoredJob, token: bytes, verdict: Verdict, due_ms: int, story: list[Any]
) -> list[Any]:
    """The end of an attempt. `due_ms`: of the retry, else 0. `story` is for the journal alone:
    attempt, status or None, milliseconds, url, detail, reply, process. So is what follows it,
    when the attempt was due; older logs lack it."""
    about = _about(Op.SETTLE, stamp, job)
    return [*about, token, verdict, due_ms, job.retries, *story, job.due_ms]


def note(stamp: int, bucket: int, seq: int, code: int) -> list[Any]:
    """For the log alone: the record (bucket, seq) of this writer was refused with `code`."""
    return [Op.NOTE, stamp, bucket, seq, code]
