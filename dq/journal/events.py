"""From a record of a log to what people and SQL want to know of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dq.db.rows import ChangeRow, MessageRow, State
from dq.log.frames import Frame, Head
from dq.queue.records import Op, Verdict, unpack

# An enum's member takes as long to find as the rest of a line here.
_PUSH, _SETTLE, _CANCEL, _MOVE = map(int, (Op.PUSH, Op.SETTLE, Op.CANCEL, Op.MOVE))
_RETRY = int(Verdict.RETRY)
_ENDS = {
    int(Verdict.DONE): int(State.DONE),
    _RETRY: int(State.DELAYED),
    int(Verdict.DEAD): int(State.DEAD),
}
_CANCELLED, _DELAYED = int(State.CANCELLED), int(State.DELAYED)


Event = MessageRow | ChangeRow


def events_of(frames: Iterable[Frame], head: Head) -> list[Event]:
    """The pushes, and the changes of a job's state, that the records tell, in their order; other
    records tell nothing."""
    events: list[Event] = []
    writer = bytes.fromhex(head.writer)
    for frame in frames:
        fields = unpack(frame.payload)
        op = fields[0]
        if op == _PUSH:
            events.append(_message(fields, frame, writer, head))
        elif op == _SETTLE:
            events.append(_attempt(fields, frame, head))
        elif op in (_CANCEL, _MOVE):
            events.append(_order(fields, frame, head))
    return events


def _message(fields: list[Any], frame: Frame, writer: bytes, head: Head) -> MessageRow:
    _, stamp, digest, due, priority, timeout_ms, topic, id_, key, body, *_ = fields
    return MessageRow(
        stamp.to_bytes(8, "big") + writer,
        topic.decode(),
        id_.decode(),
        digest,
        frame.seq,
        head.buckets[frame.bucket],
        stamp,
        due,
        stamp // 1000,
        priority,
        timeout_ms,
        key.decode(),
        body,
        _DELAYED,
        0,
        stamp,
    )


def _order(fields: list[Any], frame: Frame, head: Head) -> ChangeRow:
    op, stamp, digest, vstamp, vwriter, _, topic, id_ = fields[:8]
    is_cancel = op == _CANCEL
    return ChangeRow(
        vstamp.to_bytes(8, "big") + vwriter,
        topic.decode(),
        id_.decode(),
        digest,
        frame.pos,
        stamp,
        stamp // 1000,
        _CANCELLED if is_cancel else _DELAYED,
        detail="cancelled" if is_cancel else "another due time",
        due=None if is_cancel else fields[8],
        process=head.process,
        host=head.host,
    )


def _attempt(fields: list[Any], frame: Frame, head: Head) -> ChangeRow:
    _, stamp, digest, vstamp, vwriter, _, topic, id_, _, verdict, due, _, *story = fields
    attempt, status, ms, url, detail, reply, process, *due_before = story
    at_ms = stamp // 1000
    is_first = attempt == 1 and url and due_before
    return ChangeRow(
        vstamp.to_bytes(8, "big") + vwriter,
        topic.decode(),
        id_.decode(),
        digest,
        frame.pos,
        stamp,
        at_ms,
        _ENDS[verdict],
        attempt,
        status,
        detail.decode(),
        reply.decode("utf-8", "replace"),
        url.decode(),
        ms,
        due if verdict == _RETRY else None,
        process.decode(),
        head.host,
        max(0, at_ms - ms - due_before[0]) if is_first else None,
    )
