"""Reading the instants that people and programs write: RFC 3339, the server's local time.

Pure. Each function answers unix milliseconds, rounded up so that nothing is early by a fraction,
or raises ValueError with words that follow the field's name. What is accepted lies between 1970
and MAX_DUE_MS.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

MAX_DUE_MS = 9_007_199_254_740
"""June 2255: microseconds beyond it don't fit a double exactly, and Redis counts in doubles."""

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d{1,30})?([Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_FIX_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def parse_rfc3339(text: str) -> int:
    """`2026-11-21T06:00:00.123+08:00`; the offset must be there. A leap second, :60, is the
    second after it."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("must be an RFC 3339 time with its offset, like 2026-11-21T06:00:00+08:00")
    *numbers, fraction, zone, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    try:
        leap = second == 60
        instant = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
        instant += timedelta(seconds=int(leap)) - _offset(zone, sign, hours, minutes)
    except (ValueError, OverflowError):
        raise ValueError("is a date or time that does not exist") from None
    return check_due((instant - _EPOCH) // _MS + _fraction_ms(fraction))


def _offset(zone: str, sign: str, hours: str, minutes: str) -> timedelta:
    if zone in ("Z", "z"):
        return timedelta()
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return -offset if sign == "-" else offset


def _fraction_ms(fraction: str | None) -> int:
    if fraction is None:
        return 0
    digits = fraction[1:].ljust(3, "0")
    return int(digits[:3]) + bool(digits[3:].strip("0"))


def parse_fix_time(text: str) -> int:
    """`2026-11-21 06:00:00` in the server's time zone. In the hour that a change to summer time
    skips, it counts on from before the change (02:30 is 03:30); in the hour that happens twice,
    it is the first."""
    match = _FIX_TIME.fullmatch(text)
    if match is None:
        raise ValueError('must be "YYYY-MM-DD HH:MM:SS" in the server\'s time zone')
    year, month, day, hour, minute, second = map(int, match.groups())
    try:
        at_s = datetime(year, month, day, hour, minute, second).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError("is a date or time that does not exist") from None
    return check_due(math.floor(at_s) * 1000)


def check_due(due_ms: int) -> int:
    """The same instant, when dq can keep it."""
    if due_ms < 0:
        raise ValueError("is before 1970")
    if due_ms > MAX_DUE_MS:
        raise ValueError(f"is after June 2255; unix milliseconds go up to {MAX_DUE_MS}")
    return due_ms
