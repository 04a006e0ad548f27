"""From a record of a log to what people and SQL want to know of it."""

from __future__ import annotations

from typing import Any

from dq.db.rows import ChangeRow, MessageRow, State
from dq.log.frames import Frame, Head
from dq.queue.records import Op, Verdict, unpack

_ENDS = {Verdict.DONE: State.DONE, Verdict.RETRY: State.DELAYED, Verdict.DEAD: State.DEAD}


def event_of(frame: Frame, head: Head) -> MessageRow | ChangeRow | None:
    """The push, or the change of a job's state, that a record tells; None for neither."""
    fields = unpack(frame.payload)
    op = fields[0]
    if op == Op.PUSH:
        return _message(fields, frame, head)
    if op in (Op.CANCEL, Op.MOVE, Op.SETTLE):
        return _change(fields, frame, head)
    return None


def _message(fields: list[Any], frame: Frame, head: Head) -> MessageRow:
    _, stamp, digest, due, priority, timeout_ms, topic, id_, key, body = fields[:10]
    return MessageRow(
        version=stamp.to_bytes(8, "big") + bytes.fromhex(head.writer),
        topic=topic.decode(),
        id=id_.decode(),
        digest=digest,
        seq=frame.seq,
        bucket=head.buckets[frame.bucket],
        stamp=stamp,
        due=due,
        created=stamp // 1000,
        priority=priority,
        timeout_ms=timeout_ms,
        bkey=key.decode(),
        body=body,
    )


def _change(fields: list[Any], frame: Frame, head: Head) -> ChangeRow:
    op, stamp, digest, vstamp, vwriter, _, topic, id_ = fields[:8]
    more: dict[str, Any]
    if op == Op.CANCEL:
        more = {"state": State.CANCELLED, "detail": "cancelled", "process": head.process}
    elif op == Op.MOVE:
        detail = "another due time"
        more = {"state": State.DELAYED, "due": fields[8], "detail": detail, "process": head.process}
    else:
        more = _attempt(fields)
    return ChangeRow(
        version=vstamp.to_bytes(8, "big") + vwriter,
        topic=topic.decode(),
        id=id_.decode(),
        digest=digest,
        pos=frame.pos,
        stamp=stamp,
        at_ms=stamp // 1000,
        host=head.host,
        **more,
    )


def _attempt(fields: list[Any]) -> dict[str, Any]:
    verdict, due = fields[9:11]
    attempt, status, ms, url, detail, reply, process = fields[12:19]
    return {
        "state": _ENDS[verdict],
        "attempt": attempt,
        "status": status,
        "detail": detail.decode(),
        "reply": reply.decode(errors="replace"),
        "url": url.decode(),
        "ms": ms,
        "due": due if verdict == Verdict.RETRY else None,
        "process": process.decode(),
    }
