"""The one place that asks what time it is.

Everything else takes the time as an argument or calls these, so a test can hand in its own.
Instants are unix time in UTC; the unit is in the name. Spans are measured on the monotonic
clock, which no operator and no NTP can turn.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Unix time in milliseconds, rounded down: a job is never early."""
    return time.time_ns() // 1_000_000


def now_us() -> int:
    """Unix time in microseconds; fits a double exactly until the year 2255."""
    return time.time_ns() // 1_000


def mono_ms() -> float:
    """Milliseconds on a clock that only moves forward."""
    return time.monotonic_ns() / 1_000_000


def boot_ms() -> float:
    """The same, counting the time that the machine was asleep."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1_000_000


def rfc3339(at_ms: int) -> str:
    """An instant for people and logs: 2026-11-21T06:00:00.123Z."""
    whole, ms = divmod(at_ms, 1000)
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms:03d}Z"


def local_text(at_ms: int) -> str:
    """An instant as php-delayqueue writes it, in the server's time zone: YYYY-MM-DD HH:MM:SS."""
    return datetime.fromtimestamp(at_ms // 1000).strftime("%Y-%m-%d %H:%M:%S")


def day_stamp(at_ms: int) -> str:
    """The day a log line belongs to, in the server's time zone: YYYYMMDD."""
    return datetime.fromtimestamp(at_ms // 1000).strftime("%Y%m%d")
