"""One attempt, in five steps: lease -> call -> judge -> settle -> log.

The lease was taken by dq.workers.leasing, here it is called and judged, dq.workers.hand settles.
Three kinds of failure:
  before the call   ours: the lease is given back, nothing counts
  the call          theirs: an outcome like any other, a retry or the end
  after the call    ours: the outcome stands in the writer's log, the journal catches up
The log line is made by dq-journal from the settle record, off this path.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from dq import __version__
from dq.core import clock
from dq.core.backoff import Backoff, parse_backoff
from dq.core.callback import CallbackJob, CallbackRequest, build_request
from dq.core.outcome import Answer, Retry, Verdict, decide, judge
from dq.core.rule import Rule, parse_rule
from dq.core.topic import Topic
from dq.delivery.http import Caller, Told
from dq.delivery.template import Template, make_template
from dq.queue import records
from dq.queue.records import StoredJob

REPLY_KEPT = 1024
"""How much of a reply is kept for the history and the notify log, in bytes."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
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


class Attempts:
    """One process's way to make attempts. `unit_s`: seconds in one "minute" of the backoff."""

    def __init__(self, caller: Caller, unit_s: float, process: str) -> None:
        self._caller = caller
        self._unit_s = unit_s
        self._process = process
        self._templates: dict[str, tuple[Topic, Template | None]] = {}

    def begin(self, topic: Topic, job: StoredJob, told: Told) -> None:
        """Call; `told` hears the answer, later. Raises ValueError for a pull topic."""
        template, timeout_s = self._template_of(topic), timeout_of(topic, job)
        now_ms = clock.now_ms()
        request = None if template is None else template.fill(job, timeout_s, now_ms)
        if request is not None:
            self._caller.begin(request, told)
            return
        call = CallbackJob(
            topic=job.topic,
            id=job.id,
            body=job.body,
            due_ms=job.due_ms,
            created_ms=job.created_ms,
            attempt=job.retries + 1,
            timeout_s=timeout_s,
            message_id=job.version.key.hex(),
        )
        self._caller.begin(build_request(topic, call, now_ms, __version__), told)

    def judge(self, topic: Topic, job: StoredJob, url: str, answer: Answer) -> Outcome:
        """What an answer makes of the job."""
        verdict = judge(answer, topic, _rule(topic.retry_if))
        reply = answer.body[:REPLY_KEPT]
        attempt = job.retries + 1
        story = [attempt, answer.status, answer.ms, url, verdict.detail, reply, self._process]
        if verdict.ok:
            return Outcome(records.Verdict.DONE, 0, story)
        backoff, now_ms = _backoff(topic.backoff), clock.now_ms()
        end = decide(verdict, answer, topic, backoff, job.retries, self._unit_s, now_ms)
        if isinstance(end, Retry):
            return Outcome(records.Verdict.RETRY, end.due_ms, story)
        return Outcome(records.Verdict.DEAD, 0, story)

    def _template_of(self, topic: Topic) -> Template | None:
        known = self._templates.get(topic.topic)
        if known is None or known[0] is not topic:
            known = self._templates[topic.topic] = topic, make_template(topic)
        return known[1]


async def call_and_judge(
    caller: Caller, topic: Topic, job: CallbackJob
) -> tuple[CallbackRequest, Answer, Verdict]:
    """One callback, what it brought back and whether that is a success; settles nothing. Raises
    ValueError for a pull topic."""
    request = build_request(topic, job, clock.now_ms(), __version__)
    answer = await caller.call(request)
    return request, answer, judge(answer, topic, _rule(topic.retry_if))
