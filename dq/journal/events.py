"""From a record of a log to what people and SQL want to know of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dq.db.rows import ChangeRow, MessageRow, State
from dq.log.frames import Frame, Head
from dq.queue.records import Op, Verdict, unpack

_CHANGES = frozenset((Op.CANCEL, Op.MOVE, Op.SETTLE))
_ENDS = {Verdict.DONE: State.DONE, Verdict.RETRY: State.DELAYED, Verdict.DEAD: State.DEAD}


Event = MessageRow | ChangeRow


def events_of(frames: Iterable[Frame], head: Head) -> list[Event]:
    """What the records tell, in their order; some tell nothing."""
    found = (event_of(frame, head) for frame in frames)
    return [event for event in found if event is not None]


def event_of(frame: Frame, head: Head) -> Event | None:
    """The push, or the change of a job's state, that a record tells; None for neither."""
    fields = unpack(frame.payload)
    op = fields[0]
    if op == Op.PUSH:
        return _message(fields, frame, head)
    if op in _CHANGES:
        return _change(fields, frame, head)
    return None


def _message(fields: list[Any], frame: Frame, head: Head) -> MessageRow:
    _, stamp, digest, due, priority, timeout_ms, topic, id_, key, body = fields[:10]
    return MessageRow(
        stamp.to_bytes(8, "big") + bytes.fromhex(head.writer),
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
    )


def _change(fields: list[Any], frame: Frame, head: Head) -> ChangeRow:
    op, stamp, digest, vstamp, vwriter, _, topic, id_ = fields[:8]
    more: tuple[Any, ...]
    if op == Op.CANCEL:
        more = (State.CANCELLED, 0, None, "cancelled", "", "", 0, None, head.process, None)
    elif op == Op.MOVE:
        detail = "another due time"
        more = (State.DELAYED, 0, None, detail, "", "", 0, fields[8], head.process, None)
    else:
        more = _attempt(fields)
    state, attempt, status, detail, reply, url, ms, due, process, late_ms = more
    return ChangeRow(
        vstamp.to_bytes(8, "big") + vwriter,
        topic.decode(),
        id_.decode(),
        digest,
        frame.pos,
        stamp,
        stamp // 1000,
        state,
        attempt,
        status,
        detail,
        reply,
        url,
        ms,
        due,
        process,
        head.host,
        late_ms,
    )


def _attempt(fields: list[Any]) -> tuple[Any, ...]:
    verdict, due = fields[9:11]
    attempt, status, ms, url, detail, reply, process = fields[12:19]
    is_first = attempt == 1 and bool(url) and len(fields) > 19
    began_ms = fields[1] // 1000 - ms
    return (
        _ENDS[verdict],
        attempt,
        status,
        detail.decode(),
        reply.decode(errors="replace"),
        url.decode(),
        ms,
        due if verdict == Verdict.RETRY else None,
        process.decode(),
        max(0, began_ms - fields[19]) if is_first else None,
    )
