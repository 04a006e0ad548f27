"""Who begins when many begin at once: a few in each turn of the loop, endpoint by endpoint.

A call that opens a connection costs the loop some 0.1 ms before it waits for anything. An endpoint
that hangs takes hundreds of them together, and the callbacks of others must go on in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

AT_ONCE = 4
"""Begun in one turn of the loop, some half a millisecond of work."""

Work = Coroutine[Any, Any, None]


class Turns:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Work]] = {}
        self._begun: set[asyncio.Task[None]] = set()
        self._is_running = False

    def enter(self, endpoint: str, work: Work) -> None:
        """Do it in a task, in turn with what waits for other endpoints."""
        self._waiting.setdefault(endpoint, deque()).append(work)
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        for _ in range(AT_ONCE):
            if not self._waiting:
                self._is_running = False
                return
            self._begin_next()
        asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_next(self) -> None:
        endpoint = next(iter(self._waiting))
        line = self._waiting.pop(endpoint)
        task = asyncio.get_running_loop().create_task(line.popleft())
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        if line:
            self._waiting[endpoint] = line  # behind the others
