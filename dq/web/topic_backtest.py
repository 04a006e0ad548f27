"""A rule tried on replies that came in the past: what it would have decided otherwise.

Only the rule is looked at: a callback that failed for another reason, its status or a timeout,
fails under any rule. The journal keeps the beginning of a reply; where that is not all of it, a
rule that looks into replies can't be tried and the attempt is counted as such, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dq.core.outcome import BY_RULE
from dq.core.rule import Rule
from dq.db.attempts import Attempt
from dq.db.rows import State
from dq.delivery.attempt import REPLY_KEPT

MOST = 1_000


@dataclass(frozen=True)
class BackTest:
    """`to_retry`: were ok and would be retried; `to_ok`: were retried, or died, and would be ok.
    `tried` counts what the rule could be tried on, `too_long` the replies that are not whole here,
    `other` the failures that no rule decides."""

    to_retry: list[Attempt] = field(default_factory=list)
    to_ok: list[Attempt] = field(default_factory=list)
    tried: int = 0
    too_long: int = 0
    other: int = 0


def back_test(rule: Rule, attempts: Sequence[Attempt]) -> BackTest:
    """What `rule` would have made of these."""
    to_retry: list[Attempt] = []
    to_ok: list[Attempt] = []
    tried = too_long = other = 0
    for attempt in attempts:
        was_ok = attempt.state == State.DONE
        if was_ok and attempt.status is None:  # acknowledged by who leased it: no reply to judge
            continue
        if not was_ok and attempt.detail != BY_RULE:
            other += 1
            continue
        body = attempt.reply.encode(errors="replace")
        if rule.reads_body and len(body) >= REPLY_KEPT:
            too_long += 1
            continue
        tried += 1
        is_ok = not rule.evaluate(attempt.status, body)
        if was_ok and not is_ok:
            to_retry.append(attempt)
        elif is_ok and not was_ok:
            to_ok.append(attempt)
    return BackTest(to_retry, to_ok, tried, too_long, other)
