"""From an answer to done, retry at, or dead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.backoff import parse_backoff
from dq.core.outcome import (
    Answer,
    Dead,
    Done,
    Retry,
    Verdict,
    decide,
    judge,
    parse_retry_after,
)
from dq.core.rule import parse_rule
from dq.core.topic import Topic

NOW_MS = 1_700_000_000_000
NEVER = parse_rule("")
TOPIC = Topic(topic="t", max_retries=2)
FAILED = Verdict(False, "HTTP 500")


def ended(answer: Answer, retries: int = 0, topic: Topic = TOPIC, backoff: str = "2n+1") -> object:
    return decide(FAILED, answer, topic, parse_backoff(backoff), retries, 60.0, NOW_MS)


@pytest.mark.parametrize("status", [200, 201, 299])
def test_a_full_2xx_reply_is_a_success(status: int) -> None:
    assert judge(Answer(status, b"ok"), TOPIC, NEVER) == Verdict(True, f"HTTP {status}")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (Answer(None, error="connect refused"), "connect refused"),
        (Answer(200, b"half", error="broken reply"), "broken reply"),
        (Answer(None), "no answer"),
        (Answer(200, b""), "empty reply"),
        (Answer(204), "empty reply"),
        (Answer(301, b"x"), "HTTP 301 (redirects are not followed)"),
        (Answer(304, b"x"), "HTTP 304 (redirects are not followed)"),
        (Answer(404, b"x"), "HTTP 404"),
        (Answer(500, b"x"), "HTTP 500"),
        (Answer(199, b"x"), "HTTP 199"),
    ],
)
def test_everything_else_is_a_failure_with_its_reason(answer: Answer, detail: str) -> None:
    assert judge(answer, TOPIC, NEVER) == Verdict(False, detail)


def test_an_empty_reply_may_be_good_enough() -> None:
    topic = Topic(topic="t", empty_is_failure=False)
    assert judge(Answer(204), topic, NEVER).ok


def test_retry_if_sees_the_reply_and_status() -> None:
    rule = parse_rule("{res.code}!=200 || {status}==202")
    assert judge(Answer(200, b'{"code":200}'), TOPIC, rule).ok
    assert judge(Answer(202, b'{"code":200}'), TOPIC, rule) == Verdict(False, "retry_if is true")
    assert not judge(Answer(200, b"no json"), TOPIC, rule).ok


def test_a_cut_reply_is_judged_by_its_status() -> None:
    cut = Answer(200, b'{"code":500}', cut=True)
    assert judge(cut, TOPIC, parse_rule("{res.code}==500")).ok
    assert not judge(cut, TOPIC, parse_rule("{res.code}!=200")).ok
    assert judge(Answer(200, b"", cut=True), TOPIC, NEVER).ok
    assert not judge(Answer(500, b"x", cut=True), TOPIC, NEVER).ok


def test_a_success_is_done() -> None:
    verdict = Verdict(True, "HTTP 200")
    done = decide(verdict, Answer(200, b"x"), TOPIC, parse_backoff("2n+1"), 9, 60.0, NOW_MS)
    assert done == Done()


def test_retries_follow_the_backoff_until_they_are_used_up() -> None:
    answer = Answer(500)
    assert ended(answer, 0) == Retry(NOW_MS + 60_000)
    assert ended(answer, 1) == Retry(NOW_MS + 180_000)
    assert ended(answer, 2) == Dead()
    assert ended(answer, 3) == Dead()


def test_without_retries_the_first_failure_is_the_last() -> None:
    assert ended(Answer(500), topic=Topic(topic="t", max_retries=0)) == Dead()


@pytest.mark.parametrize("status", [429, 503])
def test_a_longer_retry_after_is_honoured(status: int) -> None:
    assert ended(Answer(status, retry_after_s=90.5)) == Retry(NOW_MS + 90_500)
    assert ended(Answer(status, retry_after_s=10.0)) == Retry(NOW_MS + 60_000)
    assert ended(Answer(status, retry_after_s=1e9)) == Retry(NOW_MS + 86_400_000)


def test_the_day_limits_retry_after_and_not_the_backoff() -> None:
    assert ended(Answer(503, retry_after_s=1e9), backoff="2d") == Retry(NOW_MS + 172_800_000)


def test_retry_after_counts_on_429_and_503_only() -> None:
    assert ended(Answer(500, retry_after_s=600.0)) == Retry(NOW_MS + 60_000)


def test_a_fraction_of_a_millisecond_is_rounded_up_so_that_no_retry_is_early() -> None:
    assert ended(Answer(503, retry_after_s=60.0001)) == Retry(NOW_MS + 60_001)


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("99999999", 86400.0),
        ("9" * 60, 86400.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:14:20 -0000", 60.0),
        ("Tue, 14 Nov 2033 22:14:20 GMT", 86400.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("soon", None),
        ("²", None),
        ("٣", None),
        ("Tue, 99 Nov 2023 99:99:99 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 86400.0),
        ("9" * 70, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, wait_s: float | None) -> None:
    assert parse_retry_after(value, NOW_MS) == wait_s


@given(st.text(max_size=80) | st.from_regex(r"\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ [+-]?\w+"))
def test_no_retry_after_raises(value: str) -> None:
    wait_s = parse_retry_after(value, NOW_MS)
    assert wait_s is None or 0 <= wait_s <= 86400
