"""Pushing again what a replay found, whoever carries it out: the command line through the API, the
admin through its own queue.

This decides, and does nothing itself: it asks for a job's state or for a batch to be pushed, and is
told the answer. Whatever dq still has is left as it is, so the same may be pushed again twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import msgspec

from dq.core.clock import now_ms
from dq.journal.replay import Push, Replay, Unfinished

BATCH_JOBS = 500
BATCH_BYTES = 4 * 1024 * 1024
SOON_MS = 600_000
FINISHED = ("done", "dead", "cancelled")


class Ask(msgspec.Struct, frozen=True):
    """Which state is this job in? Wants a Known, or None when dq doesn't know it."""

    topic: str
    id: str


class Known(msgspec.Struct, frozen=True):
    """A job's newest push."""

    state: str
    created_ms: int


class Again(msgspec.Struct, frozen=True):
    """One job to be pushed, its body as it was, unless dq has an unfinished one of that name."""

    topic: str
    id: str
    due_ms: int
    body: msgspec.Raw
    priority: str
    timeout_s: float
    key: str


class Batch(msgspec.Struct, frozen=True):
    """Push these. Wants an Outcome for each."""

    jobs: list[Again]


class Outcome(msgspec.Struct, frozen=True):
    """`result`: created or kept, or "" for what was not pushed, which `detail` explains."""

    result: str
    detail: str = ""


class PushingAgain:
    """The decisions about one replay. `counts`: created, kept, finished and failed jobs;
    `failures`: topic, id and what kept a job from being pushed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[tuple[str, str, str]] = []

    def steps(self, work: Replay, found: list[Unfinished]) -> Generator[Ask | Batch, Any, None]:
        """Everything that is to be done, one after the other. Reads the logs between two steps."""
        jobs: list[Again] = []
        size = 0
        read_ms = now_ms()
        for one, push in work.pushes(found):
            # What is due may end at any moment: it is pushed only if dq knows nothing of it.
            if one.due <= read_ms + SOON_MS and self._is_known(one, (yield Ask(one.topic, one.id))):
                continue
            jobs.append(_again(one, push))
            size += len(bytes(push.body))
            if len(jobs) >= BATCH_JOBS or size >= BATCH_BYTES:
                self._count(jobs, (yield Batch(jobs)))
                jobs, size = [], 0
        if jobs:
            self._count(jobs, (yield Batch(jobs)))

    def lost(self, work: Replay, found: list[Unfinished]) -> int:
        """How many bodies could not be read again."""
        return len(found) - self.counts.total() - work.replaced

    def _is_known(self, one: Unfinished, known: Known | None) -> bool:
        if known is None:
            return False
        is_finished = known.state in FINISHED
        if is_finished and known.created_ms < one.pushed_ms:
            return False  # an older push of the job
        self.counts["finished" if is_finished else "kept"] += 1
        return True

    def _count(self, jobs: list[Again], outcomes: list[Outcome]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            self.counts[outcome.result or "failed"] += 1
            if not outcome.result:
                self.failures.append((job.topic, job.id, outcome.detail))


def _again(one: Unfinished, push: Push) -> Again:
    return Again(
        push.topic,
        push.id,
        one.due,
        push.body,
        push.priority,
        push.timeout or 0.0,
        push.key or "",
    )
