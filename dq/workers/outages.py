"""What is told about a node that goes away and comes back: two lines in the error log, and two
mails when it was more than a blip.

A node that had lost jobs is mailed about however short it was away.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from dq.core import clock
from dq.core.alarms import compose_back_mail, compose_down_mail

_log = logging.getLogger(__name__)

BLIP_MS = 5_000


class Outage:
    """The outages of one node. `tell_people` takes a subject and a text, and never waits."""

    def __init__(self, node: str, tell_people: Callable[[str, str], None]) -> None:
        self._node = node
        self._tell_people = tell_people
        self._host = socket.gethostname()
        self._since_ms: float | None = None
        self._began_at_ms = 0
        self._away_s = 0.0
        self._is_mailed = False
        self._restored = 0

    @property
    def is_away(self) -> bool:
        """Whether it did not answer when it was last asked."""
        return self._since_ms is not None

    def see_away(self, error: Exception) -> None:
        """It did not answer."""
        if self._since_ms is None:
            self._since_ms = clock.mono_ms()
            self._began_at_ms = clock.now_ms()
            _log.error("node %s is down: %s", self._node, error)
        if not self._is_mailed and clock.mono_ms() - self._since_ms >= BLIP_MS:
            self._is_mailed = True
            reason = str(getattr(error, "detail", error))
            self._tell_people(*compose_down_mail(self._node, self._host, self._began_at_ms, reason))

    def see_back(self) -> None:
        """It answers."""
        if self._since_ms is not None:
            self._away_s = (clock.mono_ms() - self._since_ms) / 1000
            self._since_ms = None
            _log.warning("node %s is back after %.1f s", self._node, self._away_s)

    def see_restored(self, jobs: int) -> None:
        """So many more jobs had to be put back."""
        self._restored += jobs

    def see_whole(self) -> None:
        """It answers and has all that it should have."""
        if self._is_mailed or self._restored:
            self._tell_people(
                *compose_back_mail(self._node, self._host, self._away_s, self._restored)
            )
        self._is_mailed, self._restored, self._away_s = False, 0, 0.0
