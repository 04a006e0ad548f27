"""From what an endpoint answered to what becomes of the job.

Pure decisions over plain values: `judge` says whether a callback succeeded and why not,
`decide` says done, retry at, or dead. The first callback and `max_retries` retries are made,
never one more; a retry is never earlier than the topic's backoff.
"""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from dq.core.backoff import Backoff
from dq.core.rule import Rule
from dq.core.topic import Topic

MAX_RETRY_AFTER_S = 86400.0
BY_RULE: Final = "retry_if is true"
"""The detail of a failure for which the rule alone is the reason."""
_RETRY_AFTER_STATUSES = (429, 503)
_SECONDS = re.compile(r"[0-9]+", re.ASCII)


class Answer(msgspec.Struct, frozen=True):
    """What one callback brought back.

    `status` is None when no reply came. `body` is at most the reply's first 64 KiB; `cut` says
    that there was more. `error` says in words what broke, even after a status had come.
    """

    status: int | None
    body: bytes = b""
    cut: bool = False
    error: str | None = None
    retry_after_s: float | None = None
    ms: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """Whether a callback succeeded; `detail` is the reason, short and in words."""

    ok: bool
    detail: str


class Done(msgspec.Struct, frozen=True):
    """The callback succeeded: the job is finished."""


class Retry(msgspec.Struct, frozen=True):
    """The callback failed: delayed again, due at `due_ms`."""

    due_ms: int


class Dead(msgspec.Struct, frozen=True):
    """The last retry failed."""


def judge(answer: Answer, topic: Topic, rule: Rule) -> Verdict:
    """Did it succeed: in time and whole, 2xx, not empty (if that counts), `retry_if` false."""
    if answer.error is not None:
        return Verdict(False, answer.error)
    if answer.status is None:
        return Verdict(False, "no answer")
    if not 200 <= answer.status <= 299:
        redirects = " (redirects are not followed)" if 300 <= answer.status <= 399 else ""
        return Verdict(False, f"HTTP {answer.status}{redirects}")
    if topic.empty_is_failure and not answer.body and not answer.cut:
        return Verdict(False, "empty reply")
    # Half a reply is no JSON to judge by.
    if rule.evaluate(answer.status, None if answer.cut else answer.body):
        return Verdict(False, BY_RULE)
    return Verdict(True, f"HTTP {answer.status}")


def decide(
    verdict: Verdict,
    answer: Answer,
    topic: Topic,
    backoff: Backoff,
    retries: int,
    unit_s: float,
    now_ms: int,
) -> Done | Retry | Dead:
    """What becomes of a job after a callback.

    `retries` is how many retries the job has had: 0 at the first callback. `unit_s` is the
    length of a backoff unit, `now_ms` the time of the decision. A Retry-After on 429 or 503
    counts when it is longer than the backoff, up to a day.
    """
    if verdict.ok:
        return Done()
    if retries >= topic.max_retries:
        return Dead()
    delay_s = backoff.delay_s(retries, unit_s)
    if answer.retry_after_s is not None and answer.status in _RETRY_AFTER_STATUSES:
        delay_s = max(delay_s, min(answer.retry_after_s, MAX_RETRY_AFTER_S))
    return Retry(now_ms + math.ceil(delay_s * 1000))


def parse_retry_after(value: str, now_ms: int) -> float | None:
    """Seconds to wait that a Retry-After header asks for, at most a day.

    `value` is seconds or an HTTP date, compared with `now_ms`. Garbage and the past are None.
    """
    text = value.strip()
    if len(text) > 64:
        return None
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(text)
        at_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    wait_s = at_s - now_ms / 1000
    return min(wait_s, MAX_RETRY_AFTER_S) if wait_s >= 0 else None
