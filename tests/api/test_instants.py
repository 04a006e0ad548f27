"""Reading instants: RFC 3339, and local time over the two nights when the clocks change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.api.instants import MAX_DUE_MS, parse_fix_time, parse_rfc3339


def utc_ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1000  # type: ignore[misc,arg-type]


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-21T06:00:00Z", utc_ms(2026, 11, 21, 6)),
        ("2026-11-21t06:00:00z", utc_ms(2026, 11, 21, 6)),
        ("2026-11-21 06:00:00-00:00", utc_ms(2026, 11, 21, 6)),
        ("2026-11-21T06:00:00+08:00", utc_ms(2026, 11, 20, 22)),
        ("2026-11-21T06:00:00-23:59", utc_ms(2026, 11, 22, 5, 59)),
        ("2026-11-21T06:00:00.5Z", utc_ms(2026, 11, 21, 6) + 500),
        ("2026-11-21T06:00:00.123000Z", utc_ms(2026, 11, 21, 6) + 123),
        ("2026-11-21T06:00:00.999000001Z", utc_ms(2026, 11, 21, 6) + 1000),
        ("2016-12-31T23:59:60Z", utc_ms(2017, 1, 1)),
        ("2024-02-29T00:00:00Z", utc_ms(2024, 2, 29)),
    ],
)
def test_rfc3339_is_read_to_the_millisecond_and_rounded_up(text: str, ms: int) -> None:
    assert parse_rfc3339(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21",
        "2026-11-21T06:00Z",
        "2026-11-21T06:00:00",
        "2026-11-21T06:00:00+0800",
        "2026-11-21T06:00:00+24:00",
        "2026-11-21T06:00:00+08:60",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T06:60:00Z",
        "2026-11-21T06:00:61Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:60Z",
        "1969-12-31T23:59:59.999Z",
        "2256-01-01T00:00:00Z",
        "2026-W47-6T06:00:00Z",
        " 2026-11-21T06:00:00Z",
        "2026-11-21T06:00:00Z\n",
        "２０２６-11-21T06:00:00Z",
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(must be|is) "):
        parse_rfc3339(text)


@given(st.integers(0, MAX_DUE_MS))
def test_every_instant_reads_back(ms: int) -> None:
    whole, rest = divmod(ms, 1000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert parse_rfc3339(f"{text}.{rest:03d}Z") == ms


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-15 06:00:00", utc_ms(2026, 1, 15, 5)),
        ("2026-07-15 06:00:00", utc_ms(2026, 7, 15, 4)),
        ("2026-03-29 01:59:59", utc_ms(2026, 3, 29, 0, 59, 59)),
        ("2026-03-29 02:30:00", utc_ms(2026, 3, 29, 1, 30)),
        ("2026-03-29 03:30:00", utc_ms(2026, 3, 29, 1, 30)),
        ("2026-10-25 02:30:00", utc_ms(2026, 10, 25, 0, 30)),
        ("2026-10-25 03:00:00", utc_ms(2026, 10, 25, 2)),
    ],
)
def test_fix_time_is_local_and_sure_of_itself_when_the_clocks_change(text: str, ms: int) -> None:
    assert parse_fix_time(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21",
        "2026-11-21T06:00:00",
        "2026-11-21 6:00:00",
        "2026-11-21 06:00:00Z",
        "2026-11-21 06:00:60",
        "2026-11-31 06:00:00",
        "0000-00-00 00:00:00",
        "0001-01-01 00:00:00",
        "1969-06-01 00:00:00",
        "9999-12-31 23:59:59",
        "２０２６-11-21 06:00:00",
    ],
)
def test_what_is_no_local_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(must be|is) "):
        parse_fix_time(text)
