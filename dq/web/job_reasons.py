"""Why a job has not been called back yet, or is late, in words.

Pure: from what the schedule, the nodes, the topic and the processes say to a list of reasons, the
one that must be removed first in front. A reason is a kind and its values; its words are in
templates/jobs/reason.html. It guesses nothing: what isn't known is not named as a reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dq.core.topic import Topic
from dq.queue.inspect_jobs import HoldUp
from dq.queue.schedule import JobView
from dq.web.deps import Instance, ProcessLine

SOON_MS = 1_500
"""What is due for no longer than this is on its way."""


class Reason(msgspec.Struct, frozen=True):
    """`kind` chooses the words. `tone`: "" when all is as it should be, warn, or bad."""

    kind: str
    tone: str = ""
    at_ms: int = 0
    n: int = 0
    of: int = 0
    text: str = ""


def explain(
    job: JobView, topic: Topic | None, hold: HoldUp | None, instance: Instance, now_ms: int
) -> list[Reason]:
    """The reasons that hold up an unfinished job; never empty."""
    if job.state == "running":
        return _of_running(job, hold)
    waits = _of_time(job, now_ms)
    held = _of_topic(topic, hold)
    if job.state == "delayed" and job.due_ms > now_ms:
        return [*waits, *(one for one in held if one.kind not in ("concurrency", "rate"))]
    workers = _of_workers(job, topic, hold, instance)
    late = [Reason("late", at_ms=job.due_ms)] if now_ms - job.due_ms > SOON_MS else []
    return [*late, *held, *workers] or [Reason("soon")]


def _of_running(job: JobView, hold: HoldUp | None) -> list[Reason]:
    found = [Reason("running", "busy", n=job.attempt)]
    if hold is not None and hold.lease_until_ms is not None:
        found.append(Reason("lease", at_ms=hold.lease_until_ms))
    if hold is not None and hold.losses:
        found.append(Reason("losses", "warn", n=hold.losses))
    return found


def _of_time(job: JobView, now_ms: int) -> list[Reason]:
    if job.due_ms <= now_ms:
        return []
    if job.attempt:
        return [Reason("retry", "warn", at_ms=job.due_ms, n=job.attempt)]
    return [Reason("not_due", at_ms=job.due_ms)]


def _of_topic(topic: Topic | None, hold: HoldUp | None) -> list[Reason]:
    if topic is None:
        return [Reason("no_topic", "bad")]
    found = []
    if not topic.enabled:
        found.append(Reason("offline", "bad"))
    if topic.paused:
        found.append(Reason("paused", "warn"))
    if topic.callback is None:
        found.append(Reason("pull"))
    if hold is not None and hold.limit and hold.in_flight >= hold.limit:
        found.append(Reason("concurrency", "warn", n=hold.in_flight, of=hold.limit))
    if topic.rate is not None and hold is not None and hold.state == "ready":
        found.append(Reason("rate", "warn", n=hold.ready, text=f"{topic.rate:g}"))
    return found


def _of_workers(
    job: JobView, topic: Topic | None, hold: HoldUp | None, instance: Instance
) -> list[Reason]:
    found = []
    if hold is not None and hold.bucket_state not in ("", "ready"):
        found.append(Reason("restoring", "bad", text=hold.node))
    if job.state == "delayed" and not is_alive(instance.processes, "dq-timer"):
        found.append(Reason("no_timer", "bad"))
    is_called = topic is not None and topic.callback is not None
    if is_called and not is_alive(instance.processes, "dq-consumer"):
        found.append(Reason("no_consumer", "bad"))
    if hold is not None and hold.losses:
        found.append(Reason("losses", "warn", n=hold.losses))
    if not found and hold is not None and hold.ready > 1:
        found.append(Reason("queue", n=hold.ready))
    return found


def is_alive(processes: Sequence[ProcessLine], role: str) -> bool:
    """Whether a process of this role runs on this machine."""
    return any(one.name.startswith(role) and one.state == "running" for one in processes)
