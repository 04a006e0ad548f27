"""The form that pushes a job: the same reading, the same faults as the API's push.

The fields of the form become the JSON that a producer would send, and the API's own reader does the
rest, so the two can't differ. A body goes in byte for byte as it was typed.
"""

from __future__ import annotations

import json
import math

import msgspec
from aiohttp import web

from dq.api.job_fields import read_job
from dq.api.problems import Refused
from dq.core.errors import DuplicateJob, Invalid, TopicOffline, TopicUnknown
from dq.core.topic import Topic
from dq.queue.schedule import NewJob
from dq.web.deps import Admin
from dq.web.forms import Form
from dq.web.texts import Say

FIELDS = ("topic", "id", "body", "delay", "due", "priority", "timeout", "on_duplicate", "key")
_NUMBERS = ("delay", "timeout")


class PushForm:
    """Reads the form of /jobs/new."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def read(self, form: Form) -> NewJob | None:
        """The job that the form means; None when there are faults, which stand in the form."""
        body = form.raw("body").strip() or "null"
        try:
            msgspec.json.decode(body.encode(errors="replace"), type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError) as error:
            form.fault("body", Say('is no JSON: {why}. A text needs quotes: "text"', why=error))
        if form.text("due") and form.text("delay"):
            form.fault("due", Say("Give one of the two: a delay or a time."))
        raw = _as_json(form, body if "body" not in form.faults else "null")
        try:
            limit = self._admin.settings.max_body
            job = read_job(raw, self._topic, self._admin.now_ms(), limit)
        except Invalid as error:
            for fault in error.errors:
                form.fault("due" if fault.field == "fix_time" else fault.field, fault.message)
            return None
        except (TopicUnknown, TopicOffline) as error:
            form.fault("topic", str(error))
            return None
        except Refused as error:
            form.fault("body", error.problem.detail)
            return None
        return None if form.faults else job

    async def push(self, form: Form, job: NewJob) -> str | None:
        """created, replaced or kept; None when an unfinished job has the id, told at the field.
        Raises NodeAway, Overloaded, DiskFull, NodeFull."""
        try:
            return (await self._admin.schedule.push(job)).result
        except DuplicateJob as error:
            form.fault("id", str(error))
            return None

    def _topic(self, name: str) -> Topic:
        topic = self._admin.topics.get(name)
        if topic is None:
            raise TopicUnknown(name)
        if not topic.enabled:
            raise TopicOffline(name)
        return topic


def _as_json(form: Form, body: str) -> bytes:
    """The document that a producer would send for these fields; what is empty is left out."""
    members = {"body": body}
    for name in FIELDS:
        text = form.text(name)
        if name == "body" or not text:
            continue
        if name == "due":
            members.update(_due_member(text))
        else:
            members[name] = text if name in _NUMBERS and _is_number(text) else json.dumps(text)
    if "topic" not in members:
        members["topic"] = '""'
    inside = ",".join(f"{json.dumps(name)}:{value}" for name, value in members.items())
    return f"{{{inside}}}".encode(errors="replace")


def _due_member(text: str) -> dict[str, str]:
    """Unix ms, RFC 3339, or the server's local time, as the browser's own field gives it."""
    if text.isascii() and text.isdigit():
        return {"due": text.lstrip("0") or "0"}
    if text.endswith(("Z", "z")) or "+" in text or text.count("-") > 2:
        return {"due": json.dumps(text)}
    local = text.replace("T", " ")
    return {"fix_time": json.dumps(local if len(local) != 16 else f"{local}:00")}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and not text.startswith(("+", ".")) and _is_json(text)
    except ValueError:
        return False


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode(), type=float)
    except msgspec.DecodeError:
        return False
    return True


def prefill(request: web.Request) -> dict[str, str]:
    """What the address says of the fields."""
    return {name: request.query[name] for name in FIELDS if name in request.query}
