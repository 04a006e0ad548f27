"""What time a node can have: its clock is followed, but not through a jump.

A wall clock that is set forward by mistake would make every job due at once, and a callback can't
be taken back. So the node's time is compared with a clock that nobody can set. When it has run
ahead by more than SLACK_MS nothing is done by it for HOLD_MS, time to set it right again; what is
due by the old reckoning goes on. Then it is believed, unless it was set right in between: a clock
that goes to and fro has jumped anew each time. One that is set back is followed at once: that makes
jobs late, never early.
"""

from __future__ import annotations

import logging

from dq.core import clock

_log = logging.getLogger(__name__)

SLACK_MS = 5_000
HOLD_MS = 30_000


class SteadyClock:
    """One process's idea of the time of the node called `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ahead_ms: float | None = None  # of the node's clock before ours
        self._held_until_ms: float | None = None

    def now_ms(self) -> int | None:
        """What to go by instead of the node's clock; None while that is believed."""
        if self._held_until_ms is None or self._ahead_ms is None:
            return None
        if clock.boot_ms() < self._held_until_ms:
            return int(self._ahead_ms + clock.boot_ms())
        self._held_until_ms = self._ahead_ms = None
        _log.error("the clock of %s is followed from now on", self._name)
        return None

    def latest_ms(self) -> int | None:
        """More than this it can't be; None while nothing is known."""
        if self._ahead_ms is None:
            return None
        return int(self._ahead_ms + clock.boot_ms() + SLACK_MS)

    @property
    def is_held(self) -> bool:
        """Whether `now_ms` is gone by, for now."""
        return self._held_until_ms is not None

    def see(self, at_ms: int) -> None:
        """The node told this time; where it is not held, that was not too late."""
        latest_ms = self.latest_ms()
        if self._held_until_ms is None:
            self._ahead_ms = at_ms - clock.boot_ms()
        elif latest_ms is not None and at_ms <= latest_ms:
            self._held_until_ms = None
            _log.warning("the clock of %s is right again", self._name)

    def see_jump(self, at_ms: int) -> None:
        """The node told this time, and it can't be."""
        if self._held_until_ms is not None or self._ahead_ms is None:
            return
        self._held_until_ms = clock.boot_ms() + HOLD_MS
        _log.error(
            "the clock of %s jumped forward by %.1f s: jobs that are due only by that wait %.0f s; "
            "set it right, and look at its time synchronisation",
            self._name,
            (at_ms - self._ahead_ms - clock.boot_ms()) / 1000,
            HOLD_MS / 1000,
        )
