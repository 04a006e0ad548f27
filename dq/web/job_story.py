"""A job's story as a list of events, oldest first: pushed, moved, each attempt, its end."""

from __future__ import annotations

import msgspec

from dq.db.rows import JobRecord, State, Transition
from dq.web.job_body import visible

MOST_SHOWN = 200
"""Events at each end of a story that is longer than twice that."""


class Event(msgspec.Struct, frozen=True):
    """`kind`: pushed, moved, cancelled, done, retry, dead, or gap, which stands for `attempt`
    events that are left out. `due_ms`: of a retry or a move."""

    kind: str
    at_ms: int
    attempt: int = 0
    status: int | None = None
    ms: int = 0
    detail: str = ""
    reply: str = ""
    url: str = ""
    due_ms: int | None = None
    where: str = ""


def story_of(record: JobRecord | None, created_ms: int) -> list[Event]:
    """`record` None: only that it was pushed is known."""
    pushed = Event("pushed", created_ms)
    lines = record.transitions if record is not None else []
    events = [pushed, *(_event(line) for line in lines)]
    if len(events) <= 2 * MOST_SHOWN:
        return events
    left_out = len(events) - 2 * MOST_SHOWN
    gap = Event("gap", events[MOST_SHOWN].at_ms, attempt=left_out)
    return [*events[:MOST_SHOWN], gap, *events[-MOST_SHOWN:]]


def lateness_ms(record: JobRecord) -> int | None:
    """By how much its only attempt began after the due time; None when that isn't known."""
    attempts = [line for line in record.transitions if line.attempt]
    was_moved = any(line.due is not None for line in record.transitions)
    if len(attempts) != 1 or was_moved or attempts[0].attempt != 1 or not record.message.due:
        return None
    began_ms = attempts[0].at_ms - attempts[0].ms
    return max(0, began_ms - max(record.message.due, record.message.created))


def _event(line: Transition) -> Event:
    return Event(
        kind=_kind(line),
        at_ms=line.at_ms,
        attempt=line.attempt,
        status=line.status,
        ms=line.ms,
        detail=visible(line.detail),
        reply=visible(line.reply),
        url=visible(line.url),
        due_ms=line.due,
        where="@".join(name for name in (line.process, line.host) if name),
    )


def _kind(line: Transition) -> str:
    if line.state == State.DELAYED:
        return "retry" if line.attempt else "moved"
    return {State.DONE: "done", State.DEAD: "dead"}.get(State(line.state), "cancelled")
