"""Names to addresses, so that a dead name server starves nobody but the names it serves.

getaddrinfo blocks a thread for up to half a minute and can't be cancelled. Each lookup has its
own thread, at most THREADS of them; they are daemons, so that none keeps a process from ending.
Answers are kept: a name that was known is never waited for longer than PATIENCE_S, and while its
name server is away its old addresses stay good for an hour. One lookup a name at a time.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp.abc import AbstractResolver, ResolveResult

from dq.core import clock

FRESH_S = 10.0
"""How long addresses are used without asking again; getaddrinfo tells no TTL."""
KEPT_S = 3600.0
"""How long they serve when there is no new answer."""
PATIENCE_S = 0.25
"""How long a known name's new answer is waited for before its old one is used."""
FAILED_S = 2.0
"""How long a failure is an answer, at least; one that took longer stands as long as it took."""
THREADS = 256
NAMES = 10_000

Lookup = Callable[[str], list[str]]


@dataclass(slots=True)
class _Known:
    """What was last heard of a name; with an `error` there are no addresses."""

    addresses: list[str]
    heard_ms: float
    fresh_until_ms: float
    error: OSError | None = None

    def answer(self) -> list[str]:
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        return self.addresses


def look_up(host: str) -> list[str]:
    """The addresses of `host`, by the system's resolver. Raises OSError; blocks."""
    addresses: dict[str, None] = {}
    for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        ip = str(address[0])
        scope = address[3] if len(address) == 4 else 0
        addresses[f"{ip}%{scope}" if scope and "%" not in ip else ip] = None
    return list(addresses)


class Resolver(AbstractResolver):
    """Resolves for aiohttp, from one event loop. `lookup` runs in threads."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._known: dict[str, _Known] = {}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._queue: deque[str] = deque()
        self._threads = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises OSError, socket.gaierror as a rule."""
        return [
            ResolveResult(
                hostname=host,
                host=ip,
                port=port,
                family=socket.AF_INET6 if ":" in ip else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for ip in await self._find(host)
        ]

    async def close(self) -> None:
        """Forget who waits; threads that still ask end by themselves."""
        self._queue.clear()
        for running in self._running.values():
            running.cancel()
        self._running.clear()

    async def _find(self, host: str) -> list[str]:
        known = self._known.get(host)
        if known is None or known.fresh_until_ms < clock.mono_ms():
            running = self._running.get(host) or self._start(host)
            has_old = known is not None and known.error is None
            # Others wait for it too: a caller that gives up must not cancel it.
            await asyncio.wait((running,), timeout=PATIENCE_S if has_old else None)
            known = self._known.get(host, known)
        if known is None:
            raise OSError("name lookup was stopped")
        return known.answer()

    def _start(self, host: str) -> asyncio.Future[None]:
        self._running[host] = running = asyncio.get_running_loop().create_future()
        self._queue.append(host)
        self._spawn()
        return running

    def _spawn(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue and self._threads < THREADS:
            host = self._queue.popleft()
            self._threads += 1
            name = f"dq-dns-{host}"
            threading.Thread(target=self._ask, args=(loop, host), name=name, daemon=True).start()

    def _ask(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        """In a thread of its own."""
        began_ms = clock.mono_ms()
        addresses: list[str] = []
        error: OSError | None = None
        try:
            addresses = self._lookup(host)
        except OSError as failure:
            error = failure
        except UnicodeError:
            error = socket.gaierror(socket.EAI_NONAME, "no host name")
        try:
            loop.call_soon_threadsafe(self._heard, host, addresses, error, began_ms)
        except RuntimeError:
            # The loop has ended, and with it everyone who wanted to know.
            return

    def _heard(
        self, host: str, addresses: list[str], error: OSError | None, began_ms: float
    ) -> None:
        self._threads -= 1
        now_ms = clock.mono_ms()
        old = self._known.pop(host, None)
        if error is None:
            known = _Known(addresses, now_ms, now_ms + FRESH_S * 1000)
        else:
            pause_ms = max(FAILED_S * 1000, now_ms - began_ms)
            known = _Known([], now_ms, now_ms + pause_ms, error)
            if old is not None and _still_serves(old, error, now_ms):
                known = _Known(old.addresses, old.heard_ms, now_ms + pause_ms)
        self._known[host] = known
        if len(self._known) > NAMES:
            del self._known[next(iter(self._known))]
        running = self._running.pop(host, None)
        if running is not None and not running.done():
            running.set_result(None)
        self._spawn()


def _still_serves(old: _Known, error: OSError, now_ms: float) -> bool:
    """Not after a name server has said that the name is no more."""
    is_gone = error.errno == socket.EAI_NONAME
    return old.error is None and not is_gone and now_ms - old.heard_ms < KEPT_S * 1000
