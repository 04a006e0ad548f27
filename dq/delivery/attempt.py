"""One attempt, in five steps: lease -> call -> judge -> settle -> log.

The lease was taken by dq.workers.consumer; here is what follows. Three kinds of failure:
  before the call   ours: the lease is given back, nothing counts
  the call          theirs: an outcome like any other, a retry or the end
  after the call    ours: the outcome stands in the writer's log, the journal catches up
The log line is made by dq-journal from the settle record, off this path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dq import __version__
from dq.core import clock
from dq.core.backoff import Backoff, parse_backoff
from dq.core.callback import CallbackJob, CallbackRequest, build_request
from dq.core.outcome import Answer, Done, Retry, Verdict, decide, judge
from dq.core.rule import Rule, parse_rule
from dq.core.topic import Topic
from dq.delivery.http import Caller
from dq.queue import records
from dq.queue.records import StoredJob

REPLY_KEPT = 1024
"""How much of a reply is kept for the history and the notify log, in bytes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, ready to be settled."""

    verdict: records.Verdict
    due_ms: int
    story: list[Any]


@lru_cache(maxsize=4096)
def _rule(text: str) -> Rule:
    return parse_rule(text)


@lru_cache(maxsize=4096)
def _backoff(text: str) -> Backoff:
    return parse_backoff(text)


def timeout_of(topic: Topic, job: StoredJob) -> float:
    """Seconds for one callback of this job."""
    return job.timeout_ms / 1000 if job.timeout_ms else topic.timeout


async def make_attempt(
    caller: Caller, topic: Topic, job: StoredJob, unit_s: float, process: str
) -> Outcome:
    """Call, and judge the answer. `unit_s`: seconds in one "minute" of the backoff."""
    call = CallbackJob(
        topic=job.topic,
        id=job.id,
        body=job.body,
        due_ms=job.due_ms,
        created_ms=job.created_ms,
        attempt=job.retries + 1,
        timeout_s=timeout_of(topic, job),
        message_id=job.version.key.hex(),
    )
    request, answer, verdict = await call_and_judge(caller, topic, call)
    return _outcome(topic, job, unit_s, answer, verdict, (request.url, process))


async def call_and_judge(
    caller: Caller, topic: Topic, job: CallbackJob
) -> tuple[CallbackRequest, Answer, Verdict]:
    """One callback, what it brought back and whether that is a success; settles nothing. Raises
    ValueError for a pull topic."""
    request = build_request(topic, job, clock.now_ms(), __version__)
    answer = await caller.call(request)
    return request, answer, judge(answer, topic, _rule(topic.retry_if))


def _outcome(
    topic: Topic,
    job: StoredJob,
    unit_s: float,
    answer: Answer,
    verdict: Verdict,
    where: tuple[str, str],
) -> Outcome:
    backoff = _backoff(topic.backoff)
    end = decide(verdict, answer, topic, backoff, job.retries, unit_s, clock.now_ms())
    kind, due_ms = records.Verdict.DEAD, 0
    if isinstance(end, Done):
        kind = records.Verdict.DONE
    elif isinstance(end, Retry):
        kind, due_ms = records.Verdict.RETRY, end.due_ms
    url, process = where
    reply = answer.body[:REPLY_KEPT]
    story = [job.retries + 1, answer.status, answer.ms, url, verdict.detail, reply, process]
    return Outcome(kind, due_ms, story)
