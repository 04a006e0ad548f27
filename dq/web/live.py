"""Live figures: one stream of server-sent events, for as long as somebody looks.

One task looks at the nodes for all who watch and ends with the last of them, so nobody is polled
while nobody looks. What is sent are the very fragments of the page, rendered for each visitor, and
only those that changed. A stream ends with its session, and a reader too slow to take it is let go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from aiohttp import web

from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.visitor import Visitor, visitor_of

_log = logging.getLogger(__name__)

EACH_S = 1.5
SLOW_S = 5.0
MOST_WATCHERS = 100


S = TypeVar("S")
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}


class Live(Generic[S]):
    """`look` reads what there is to show, once for all; `render` makes a visitor's fragments of
    it, by name; `is_welcome` tells whether a session still stands."""

    def __init__(
        self,
        look: Callable[[], Awaitable[S]],
        render: Callable[[Visitor, S], Mapping[str, str]],
        is_welcome: Callable[[Visitor], bool],
        each_s: float = EACH_S,
    ) -> None:
        self._look = look
        self._render = render
        self._is_welcome = is_welcome
        self._each_s = each_s
        self._seen: S | None = None
        self._changed = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._is_over = False
        self.watchers = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/live", self.stream, allow_head=False)]

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """GET /live"""
        if self._is_over or self.watchers >= MOST_WATCHERS:
            raise too_many()
        response = web.StreamResponse(headers=_HEADERS)
        response.force_close()
        self.watchers += 1
        try:
            await response.prepare(request)
            await self._send_all(response, visitor_of(request))
        except (ConnectionError, TimeoutError):
            return response  # who hung up, or reads too slowly, comes back by itself
        finally:
            self.watchers -= 1
        return response

    async def stop(self, _: web.Application | None = None) -> None:
        """End all streams: the process is leaving."""
        self._is_over = True
        self._tell()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _send_all(self, response: web.StreamResponse, visitor: Visitor) -> None:
        sent: dict[str, str] = {}
        while not self._is_over and self._is_welcome(visitor):
            changed = self._watch()
            if self._seen is not None:
                now = self._render(visitor, self._seen)
                news = {name: text for name, text in now.items() if sent.get(name) != text}
                sent.update(news)
                await _send(response, news)
            await changed.wait()

    def _watch(self) -> asyncio.Event:
        """The event that the next look sets; there is a looker from now on."""
        if self._looking is None or self._looking.done():
            self._seen = None  # older than anybody's patience
            self._looking = asyncio.create_task(self._keep_looking())
        return self._changed

    async def _keep_looking(self) -> None:
        while self.watchers and not self._is_over:
            try:
                self._seen = await self._look()
            except Exception:
                _log.exception("the live figures could not be read")
            self._tell()
            await asyncio.sleep(self._each_s)

    def _tell(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()


def too_many() -> Refusal:
    """The answer to one watcher more than there may be."""
    return Refusal(503, Say("Too many pages watch at once."), retry_after_s=30)


async def _send(response: web.StreamResponse, news: Mapping[str, str]) -> None:
    """One event. Without news a beat: the page sees that it is not cut off, and who is gone is
    found out."""
    data = f"data: {msgspec.json.encode(news).decode()}\n\n" if news else "event: beat\ndata:\n\n"
    async with asyncio.timeout(SLOW_S):
        await response.write(data.encode())
