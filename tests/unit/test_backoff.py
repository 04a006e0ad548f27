"""Backoffs: php-delayqueue's 1, 3, 5 …, doubling, or a list."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.backoff import parse_backoff


def delays(text: str, count: int = 5, unit_s: float = 60.0) -> list[float]:
    backoff = parse_backoff(text)
    return [backoff.delay_s(n, unit_s) for n in range(count)]


def test_2n_plus_1_counts_units() -> None:
    assert delays("2n+1") == [60, 180, 300, 420, 540]
    assert delays(" 2n+1 ", unit_s=0.1) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])


def test_exp_doubles_up_to_its_maximum() -> None:
    assert delays("exp:10s,1m") == [10, 20, 40, 60, 60]
    assert delays("exp:1, 1h", 3) == [1, 2, 4]
    assert parse_backoff("exp:1ms,1d").delay_s(100_000, 60.0) == 86400


def test_the_last_step_of_a_list_repeats() -> None:
    assert delays("10s,1m,5m,1h", 6) == [10, 60, 300, 3600, 3600, 3600]
    assert delays("0, 1.5, 250ms,1d", 4) == [0, 1.5, 0.25, 86400]
    assert delays("30", 2) == [30, 30]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "10s,",
        "soon",
        "-1s",
        "1e3",
        "1w",
        "nan",
        "inf",
        "٣s",
        "2n+2",
        "exp:",
        "exp:10s",
        "exp:1s,2s,3s",
        "exp:0,1h",
        "exp:1h,10s",
        "367d",
        "999999999999999999",
        "1," * 100 + "1",
        "1" * 1001,
    ],
)
def test_a_mistake_is_told_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as|exp|at most|longer than a year"):
        parse_backoff(text)


_durations = st.builds(
    lambda number, unit: f"{number}{unit}",
    st.integers(0, 300),
    st.sampled_from(["", "ms", "s", "m", "h", "d"]),
)
_texts = (
    st.just("2n+1")
    | st.builds(",".join, st.lists(_durations, min_size=1, max_size=8))
    | st.builds("exp:{},{}".format, _durations, _durations)
)


@given(_texts, st.integers(0, 10**6), st.floats(0.001, 3600))
def test_a_delay_is_finite_and_never_negative(text: str, n: int, unit_s: float) -> None:
    try:
        backoff = parse_backoff(text)
    except ValueError:
        assert text.startswith("exp:")
        return
    assert 0 <= backoff.delay_s(n, unit_s) < math.inf


@given(st.integers(0, 1000))
def test_2n_plus_1_and_exp_never_shrink(n: int) -> None:
    for text in ("2n+1", "exp:3s,2d"):
        backoff = parse_backoff(text)
        assert backoff.delay_s(n, 60.0) <= backoff.delay_s(n + 1, 60.0)


@given(st.text(max_size=60) | st.text("0123456789smhd,.exp: 2n+", max_size=60))
def test_no_text_raises_anything_but_value_error(text: str) -> None:
    try:
        assert parse_backoff(text).delay_s(3, 60.0) >= 0
    except ValueError as error:
        assert str(error)


def test_a_huge_text_is_refused_at_once() -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match="at most"):
        parse_backoff("9," * 10_000_000)
    assert time.process_time() - started < 1
