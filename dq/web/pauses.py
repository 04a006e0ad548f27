"""Growing pauses after wrong passwords, so that guessing takes years and a typing mistake nothing.

Each address pays for its own attempts: from the third wrong one on it waits 1, 2, 4 … 60 s. An
account that is tried from many addresses pauses for all that never got in, but for 5 s at most, so
nobody can lock its owner out. Kept in memory and bounded; the time is handed in.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

FREE = 2
LONGEST_MS = 60_000
ACCOUNT_FREE = 20
ACCOUNT_LONGEST_MS = 5_000
FORGET_MS = 3_600_000
_MOST = 10_000


@dataclass
class _Tries:
    count: int = 0
    last_ms: int = 0

    def wait_ms(self, now_ms: int, free: int, longest_ms: int) -> int:
        over = self.count - free
        pause_ms = min(longest_ms, 1000 << min(over - 1, 20)) if over > 0 else 0
        return max(0, self.last_ms + pause_ms - now_ms)


class Pauses:
    """The attempts of the last hour."""

    def __init__(self) -> None:
        self._tries: dict[tuple[str, str], _Tries] = {}
        self._known: dict[tuple[str, str], int] = {}

    def wait_ms(self, user: str, address: str, now_ms: int) -> int:
        """How long this address must wait before it may try this account; 0: it may now."""
        place = _place(address)
        by_address = self._look("address", place).wait_ms(now_ms, FREE, LONGEST_MS)
        if (user, place) in self._known:
            return by_address
        tries = self._look("account", user)
        return max(by_address, tries.wait_ms(now_ms, ACCOUNT_FREE, ACCOUNT_LONGEST_MS))

    def begin(self, user: str, address: str, now_ms: int) -> None:
        """An attempt. It counts as wrong until `succeed` says otherwise, so that many at once
        don't all slip through."""
        self._forget_old(now_ms)
        for key in (("address", _place(address)), ("account", user)):
            tries = self._tries.setdefault(key, _Tries())
            tries.count = 1 if now_ms - tries.last_ms > FORGET_MS else tries.count + 1
            tries.last_ms = now_ms

    def succeed(self, user: str, address: str, now_ms: int) -> None:
        """The attempt was right: this address starts afresh, and is known to this account."""
        place = _place(address)
        self._tries.pop(("address", place), None)
        self._look("account", user).count -= 1
        self._known[user, place] = now_ms

    def _look(self, kind: str, name: str) -> _Tries:
        return self._tries.get((kind, name), _Tries())

    def _forget_old(self, now_ms: int) -> None:
        if len(self._tries) >= _MOST:
            old = [key for key, one in self._tries.items() if now_ms - one.last_ms > FORGET_MS]
            for key in old or list(self._tries)[: _MOST // 2]:
                del self._tries[key]
        if len(self._known) >= _MOST:
            for pair in list(self._known)[: _MOST // 2]:
                del self._known[pair]


def _place(address: str) -> str:
    """One network counts as one: an IPv6 customer has 2^64 addresses of their own."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 6 and ip.ipv4_mapped is None:
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)
