"""What goes into the journal and what comes out of it, as plain values.

Stamps are unix microseconds and never repeat within a writer; `_ms` and `due` are milliseconds.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from dq.core.errors import DqError


class State(IntEnum):
    """What the journal knows of a version. Delayed covers all that is unfinished."""

    DELAYED = 0
    DEAD = 1
    CANCELLED = 2
    DONE = 3
    REPLACED = 4


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """One push of a job. `version` is its stamp (8 bytes, big endian) and its writer (8 bytes).

    `changed` is the stamp of its last change of state; left 0, its own stamp. `stub` rows come
    from a change whose push has not been shipped yet: their body is not known.
    """

    version: bytes
    topic: str
    id: str
    digest: bytes
    seq: int
    bucket: str
    stamp: int
    due: int
    created: int
    priority: int
    timeout_ms: int
    bkey: str
    body: bytes
    state: int = State.DELAYED
    attempt: int = 0
    changed: int = 0
    stub: bool = False


class ChangeRow(msgspec.Struct, frozen=True, gc=False):
    """One change of a version's state, read at byte `pos` of its writer's log.

    A retry or another due time is a change to DELAYED with the new `due`. `ms` is how long the
    callback took, `status` its HTTP status, None where there was none. `late_ms`: of a first
    attempt, by how much it began after its due time; it is counted and not kept with the row.
    """

    version: bytes
    topic: str
    id: str
    digest: bytes
    pos: int
    stamp: int
    at_ms: int
    state: int
    attempt: int = 0
    status: int | None = None
    detail: str = ""
    reply: str = ""
    url: str = ""
    ms: int = 0
    due: int | None = None
    process: str = ""
    host: str = ""
    late_ms: int | None = None


class Batch(msgspec.Struct, frozen=True):
    """A stretch of one writer's log, from byte `pos_before` to `pos_after`."""

    writer: bytes
    pos_before: int
    pos_after: int
    messages: list[MessageRow]
    changes: list[ChangeRow]


class Rejected(msgspec.Struct, frozen=True):
    """A row that the database would not take, and its words."""

    row: MessageRow | ChangeRow
    reason: str


class Place(msgspec.Struct, frozen=True):
    """An unfinished version and the bucket that should hold it."""

    version: bytes
    digest: bytes
    topic: str
    bucket: str
    due: int


class Transition(msgspec.Struct, frozen=True):
    """One line of a job's history."""

    at_ms: int
    state: int
    attempt: int
    status: int | None
    detail: str
    reply: str
    url: str
    ms: int
    due: int | None
    process: str
    host: str


class JobRecord(msgspec.Struct, frozen=True):
    """The newest version of a job and what happened to it, oldest first."""

    message: MessageRow
    transitions: list[Transition]


class JobSummary(msgspec.Struct, frozen=True):
    """A line of a search. `preview` is how the body begins, `size` its length in bytes."""

    version: bytes
    topic: str
    id: str
    due: int
    created: int
    priority: int
    bkey: str
    state: int
    attempt: int
    changed: int
    preview: bytes
    size: int


class Page(msgspec.Struct, frozen=True):
    """Lines of a search, newest first. A page may be short and yet have a `cursor` to go on."""

    jobs: list[JobSummary]
    cursor: str | None


class Death(msgspec.Struct, frozen=True):
    """A job's last retry that failed. `no` grows in the order of shipping."""

    no: int
    topic: str
    id: str
    version: bytes
    at_ms: int
    attempt: int
    status: int | None
    detail: str
    reply: str
    url: str


class Purged(msgspec.Struct, frozen=True):
    """One bite of purging. `after` is where the next begins, None when all is looked through."""

    removed: int
    after: bytes | None


class CursorMoved(DqError):
    """Someone else shipped this log meanwhile; go on from `actual`."""

    def __init__(self, writer: bytes, actual: int) -> None:
        self.writer = writer
        self.actual = actual
        super().__init__(f"the journal has the log {writer.hex()} up to {actual} already")
