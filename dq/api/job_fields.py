"""What a push may say, and what it means: JSON bytes -> NewJob.

Defaults that belong to the topic are filled in here, at the time of the push; only the timeout is
left to the topic as it will be at the time of the call. The body is never looked into and never
written anew: the bytes between the field's colon and the next comma are the job's body.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from dq.api import ids
from dq.api.fields import Fields
from dq.api.instants import check_due, parse_fix_time, parse_rfc3339
from dq.api.problems import Refused
from dq.api.wire import too_large
from dq.core.errors import FieldError, Invalid
from dq.core.topic import Topic, fault_of_topic_name, is_topic_name
from dq.core.topic_fields import MAX_DELAY_S
from dq.queue.records import PRIORITIES
from dq.queue.schedule import NewJob

MAX_KEY_CHARS = 256

_NO_BODY = msgspec.Raw(b"null")
_TIME_FIELDS = ("delay", "due", "fix_time")


class PushFields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The JSON object of one push, as it comes."""

    topic: str
    id: str | UnsetType = UNSET
    body: msgspec.Raw = _NO_BODY
    delay: float | UnsetType = UNSET
    due: int | str | UnsetType = UNSET
    fix_time: str | UnsetType = UNSET
    priority: Literal["high", "normal", "low"] | UnsetType = UNSET
    timeout: float | UnsetType = UNSET
    on_duplicate: Literal["replace", "keep", "reject"] = "replace"
    key: str = ""


class TimeFields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The JSON object of a PATCH: another due time."""

    delay: float | UnsetType = UNSET
    due: int | str | UnsetType = UNSET
    fix_time: str | UnsetType = UNSET


_WANTS = {
    "topic": "must be a text, the name of a registered topic",
    "id": "must be a text; leave it out and dq makes one",
    "body": "must be JSON that is not nested too deeply",
    "delay": f"must be a number of seconds from 0 to {MAX_DELAY_S}",
    "due": "must be unix milliseconds as a whole number, or an RFC 3339 time as a text",
    "fix_time": 'must be a text, "YYYY-MM-DD HH:MM:SS" in the server\'s time zone',
    "priority": 'must be "high", "normal" or "low"',
    "timeout": "must be a number of seconds from 0.1 to 600",
    "on_duplicate": 'must be "replace", "keep" or "reject"',
    "key": f"must be a text of at most {MAX_KEY_CHARS} characters",
}


def read_job(
    raw: bytes, topic_of: Callable[[str], Topic], now_ms: int, max_body_bytes: int
) -> NewJob:
    """The job that a push means. `topic_of`: a registered topic that takes jobs, or raises.

    Raises Refused 400 and 413, Invalid, and what `topic_of` raises.
    """
    fields = _push_fields.read(raw)
    body = bytes(fields.body)
    if len(body) > max_body_bytes:
        detail = f"the job's body has {len(body)} bytes; at most {max_body_bytes} are taken"
        raise Refused(too_large(detail))
    topic = topic_of(fields.topic)
    absolute = fields.due is not UNSET or fields.fix_time is not UNSET
    due_ms = _due_ms(fields, now_ms)
    return NewJob(
        topic=fields.topic,
        id=ids.new_id(now_ms) if fields.id is UNSET else fields.id,
        body=body,
        due_ms=_after(now_ms, topic.delay) if due_ms is None else due_ms,
        absolute=absolute,
        priority=PRIORITIES.index(topic.priority if fields.priority is UNSET else fields.priority),
        timeout_ms=0 if fields.timeout is UNSET else math.ceil(fields.timeout * 1000),
        key=fields.key,
        on_duplicate=fields.on_duplicate,
    )


def read_due(raw: bytes, now_ms: int) -> int:
    """The due time, unix ms, that a PATCH asks for. Raises Refused 400, Invalid."""
    due_ms = _due_ms(_time_fields.read(raw), now_ms)
    if due_ms is None:
        raise Invalid([FieldError("", f"one of {', '.join(_TIME_FIELDS)} is required")])
    return due_ms


def _due_ms(fields: PushFields | TimeFields, now_ms: int) -> int | None:
    """None when no time is given. The fields have been checked."""
    if fields.delay is not UNSET:
        return _after(now_ms, fields.delay)
    if fields.fix_time is not UNSET:
        return parse_fix_time(fields.fix_time)
    if isinstance(fields.due, str):
        return parse_rfc3339(fields.due)
    return None if fields.due is UNSET else fields.due


def _after(now_ms: int, delay_s: float) -> int:
    return math.ceil(now_ms + delay_s * 1000)


def _faults_of_push(fields: PushFields) -> list[FieldError]:
    """What is wrong with values of the right type. This is on the hot path: a right push costs a
    few comparisons."""
    faults: list[FieldError] = []
    if not is_topic_name(fields.topic):
        faults.append(FieldError("topic", fault_of_topic_name(fields.topic)))
    if fields.id is not UNSET and not ids.is_good_id(fields.id):
        faults.append(FieldError("id", ids.fault_of_id(fields.id)))
    if fields.timeout is not UNSET and not 0.1 <= fields.timeout <= 600:
        faults.append(FieldError("timeout", _WANTS["timeout"]))
    if fields.key and not _is_good_key(fields.key):
        message = f"must be at most {MAX_KEY_CHARS} printable characters"
        faults.append(FieldError("key", message))
    if fields.due is UNSET and fields.fix_time is UNSET:
        if fields.delay is not UNSET and not 0 <= fields.delay <= MAX_DELAY_S:
            faults.append(FieldError("delay", _WANTS["delay"]))
        return faults
    return faults + _faults_of_time(fields)


def _is_good_key(key: str) -> bool:
    return len(key) <= MAX_KEY_CHARS and key.isprintable()


def _faults_of_time(fields: PushFields | TimeFields) -> list[FieldError]:
    given = [name for name in _TIME_FIELDS if getattr(fields, name) is not UNSET]
    if len(given) > 1:
        message = f"only one of {', '.join(_TIME_FIELDS)} may be given"
        return [FieldError(name, message) for name in given]
    try:
        _check_time(fields)
    except ValueError as error:
        return [FieldError(given[0], str(error))]
    return []


def _check_time(fields: PushFields | TimeFields) -> None:
    """Raises ValueError with words that follow the name of the one time field there is."""
    if fields.delay is not UNSET:
        if not 0 <= fields.delay <= MAX_DELAY_S:
            raise ValueError(_WANTS["delay"])
    elif isinstance(fields.due, int):
        check_due(fields.due)
    elif isinstance(fields.due, str):
        parse_rfc3339(fields.due)
    elif fields.fix_time is not UNSET:
        parse_fix_time(fields.fix_time)


_push_fields = Fields(PushFields, _WANTS, _faults_of_push)
_time_fields = Fields(TimeFields, _WANTS, _faults_of_time)
