"""What a record of a log means: the operations that change jobs, as msgpack arrays.

A record is packed once; the same bytes go into the log and, as they are, to the `apply` script,
so the order of the fields here and in lua/*.lua is one contract. Only the old msgpack string types
are used: Redis's own decoder knows no others. Each record carries a stamp, unix microseconds,
which never repeats within a writer: (stamp, writer) names a version of a job.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Any

import msgpack
import msgspec

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


CODES = {int(code): code for code in Code}
"""By number, for those who look up thousands a second."""


class Version(msgspec.Struct, frozen=True, gc=False):
    """One push of a job. Settling, cancelling and moving name the version that they mean."""

    stamp: int
    writer: bytes
    seq: int

    @property
    def key(self) -> bytes:
        """16 bytes that sort as versions do: by stamp, ties by writer."""
        return self.stamp.to_bytes(8, "big") + self.writer


class StoredJob(msgspec.Struct, frozen=True, gc=False):
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


# A job in a bucket's hash: lua/job.lua says what lies where.
_WIDTHS = (2, 3, 4, 6)
_WIDTH_BITS = [8 * width - 1 for width in _WIDTHS]
_TOLD, _LIVED = 16, 32
_NORMAL = 1
_HEAD = Struct(">Q8s")  # flags and stamp, writer
_STAMP_BITS = 56
_STAMP_MASK = (1 << _STAMP_BITS) - 1


def unpack_job(payload: bytes) -> StoredJob:
    """The job in a bucket's hash (packed by lua/job.lua, or `pack_job`)."""
    head, writer = _HEAD.unpack_from(payload)
    flags = head >> _STAMP_BITS
    if flags > 63:
        raise ValueError("a job was packed by another version of dq")
    stamp = head & _STAMP_MASK
    at = 16 + _WIDTHS[flags & 3]
    seq = int.from_bytes(payload[16:at], "big")
    from_, at = at, at + _WIDTHS[flags >> 2 & 3]
    due_ms = stamp // 1000 + int.from_bytes(payload[from_:at], "big", signed=True)
    topic, at = _text_at(payload, at)
    id_, at = _text_at(payload, at)
    priority, timeout_ms, key = _NORMAL, 0, ""
    if flags & _TOLD:
        priority, timeout_ms = payload[at], int.from_bytes(payload[at + 1 : at + 4], "big")
        key, at = _text_at(payload, at + 4)
    retries, is_closed, changed = 0, False, 0
    if flags & _LIVED:
        retries, is_closed = int.from_bytes(payload[at : at + 2], "big"), payload[at + 2] == 1
        changed, at = int.from_bytes(payload[at + 3 : at + 10], "big"), at + 10
    return StoredJob(
        Version(stamp, writer, seq),
        due_ms,
        retries,
        priority,
        timeout_ms,
        topic,
        id_,
        key,
        payload[at:],
        changed,
        is_closed,
    )


def _text_at(payload: bytes, at: int) -> tuple[str, int]:
    """A text that NUL ends, and where what follows it begins."""
    end = payload.index(0, at)
    return payload[at:end].decode(), end + 1


def pack_job(job: StoredJob) -> bytes:
    """A job as a bucket's hash holds it; the reverse of `unpack_job`."""
    version = job.version
    ahead_ms = job.due_ms - job.created_ms
    seq_width, ahead_width = _width_of(version.seq), _width_of(ahead_ms)
    flags = seq_width | ahead_width << 2
    told = lived = b""
    if job.priority != _NORMAL or job.timeout_ms or job.key:
        flags |= _TOLD
        told = bytes([job.priority]) + job.timeout_ms.to_bytes(3, "big") + job.key.encode() + b"\0"
    if job.retries or job.is_closed or job.changed:
        flags |= _LIVED
        lived = job.retries.to_bytes(2, "big") + bytes([job.is_closed])
        lived += job.changed.to_bytes(7, "big")
    head = [
        _HEAD.pack(flags << _STAMP_BITS | version.stamp, version.writer),
        version.seq.to_bytes(_WIDTHS[seq_width], "big"),
        ahead_ms.to_bytes(_WIDTHS[ahead_width], "big", signed=True),
        f"{job.topic}\0{job.id}\0".encode(),
    ]
    return b"".join([*head, told, lived, job.body])


def _width_of(number: int) -> int:
    """An index into _WIDTHS; the same as lua/job.lua's."""
    return bisect_left(_WIDTH_BITS, (number if number >= 0 else ~number).bit_length())


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
