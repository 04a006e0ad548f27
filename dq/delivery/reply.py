"""What may come back from an endpoint, whichever client asked it: how much of it, and what is kept.

Nothing here talks to anyone; the limits hold for both clients alike.
"""

from __future__ import annotations

from dq.core import clock
from dq.core.outcome import parse_retry_after

MAX_REPLY = 64 * 1024
"""Bytes of a reply that are kept; a connection that brought more is not used again."""
MAX_INTERIM = 16
"""1xx replies before the real one; a server that sends more is only keeping us busy."""
ENDLESS_INTERIM = "endless interim replies"

_RETRY_AFTER_STATUSES = (429, 503)


class Reply:
    """What has come so far, kept apart so that a timeout doesn't lose it."""

    __slots__ = ("body", "is_cut", "retry_after_s", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.body = b""
        self.is_cut = False
        self.retry_after_s: float | None = None

    def read_retry_after(self, value: str) -> None:
        """A Retry-After header; it means something with two statuses only."""
        if self.status in _RETRY_AFTER_STATUSES:
            self.retry_after_s = parse_retry_after(value, clock.now_ms())

    def keep(self, body: bytes) -> None:
        """The body as far as it came: a byte more than is kept says that there was more."""
        self.is_cut = len(body) > MAX_REPLY
        self.body = body[:MAX_REPLY] if self.is_cut else body
