"""How long a failed job waits before its next retry.

Three forms: `2n+1` (1, 3, 5 … units, n retries so far), `exp:BASE,MAX` (doubling up to MAX) and
a list `10s,1m,5m` (its last entry repeats). A delay is finite and never negative, whatever n.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

LINEAR: Final = "2n+1"
_MAX_TEXT = 1000
_MAX_STEPS = 100
_MAX_STEP_S = 366 * 86400.0
_MAX_DOUBLINGS = 60
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORMS = 'write "2n+1", "exp:10s,1h" or a list like "10s,1m,5m,1h"'


class Backoff(msgspec.Struct, frozen=True):
    """A parsed backoff: `steps_s`, or doubling from `base_s` to `max_s`, or else 2n+1 units."""

    steps_s: tuple[float, ...] = ()
    base_s: float = 0.0
    max_s: float = 0.0

    def delay_s(self, n: int, unit_s: float) -> float:
        """Seconds before the next retry, after `n` retries so far (0 before the first).

        `unit_s` is the length of one unit of 2n+1; the other forms say their own.
        """
        if self.steps_s:
            return self.steps_s[min(n, len(self.steps_s) - 1)]
        if self.max_s:
            return min(self.base_s * 2.0 ** min(n, _MAX_DOUBLINGS), self.max_s)
        return (2 * n + 1) * unit_s


def parse_backoff(text: str) -> Backoff:
    """A backoff from its text; raises ValueError saying what would be right."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"must be at most {_MAX_TEXT} characters")
    compact = text.strip()
    if compact == LINEAR:
        return Backoff()
    if compact.startswith("exp:"):
        return _parse_exponential(compact.removeprefix("exp:"))
    steps = compact.split(",")
    if len(steps) > _MAX_STEPS:
        raise ValueError(f"must be at most {_MAX_STEPS} steps; the last one repeats")
    return Backoff(steps_s=tuple(_parse_duration(step) for step in steps))


def _parse_exponential(text: str) -> Backoff:
    bounds = [_parse_duration(part) for part in text.split(",")]
    if len(bounds) != 2:
        raise ValueError("exp takes a base and a maximum, e.g. exp:10s,1h")
    base_s, max_s = bounds
    if base_s <= 0 or max_s < base_s:
        raise ValueError("exp's base must be above 0 and not above its maximum, e.g. exp:10s,1h")
    return Backoff(base_s=base_s, max_s=max_s)


def _parse_duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        shown = text.strip()[:40]
        raise ValueError(f"{shown!r} is no duration such as 10s, 1m, 5m, 1h or 1d; {_FORMS}")
    number, unit = match.groups()
    seconds = float(number) * _UNIT_S[unit or "s"]
    if seconds > _MAX_STEP_S:
        raise ValueError(f"{text.strip()} is longer than a year")
    return seconds
