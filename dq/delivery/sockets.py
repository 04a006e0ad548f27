"""How many sockets both clients have open together, and which of them rest.

A resting connection is only there to save somebody a handshake: when the files run short the one
that has rested longest goes, whoever it belongs to.
"""

from __future__ import annotations

from typing import Protocol

KEPT_IDLE_S = 1.5
"""Less than any common server: gunicorn closes after 2 s, Node after 5."""


class Closable(Protocol):
    """A connection that rests."""

    def close(self) -> None:
        """Close it at once."""


class Sockets:
    """At most `limit` of them, when there are no more calls than that."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        """Open, or being opened."""
        self.resting: dict[Closable, None] = {}
        """The one that has rested longest is the first."""

    def make_room(self) -> None:
        """Before another one is opened."""
        if self.count >= self.limit and self.resting:
            next(iter(self.resting)).close()
