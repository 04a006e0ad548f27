"""When a process looks at what it only looks at now and then: together, in one turn.

A process with nothing to do pays for each time it is woken more than for what it looks at then. So
loops that look once in a while do not sleep by themselves: all that look every second are woken by
one timer. Not for what must be on time.
"""

from __future__ import annotations

import asyncio

_EARLY_S = 0.005
"""With timers of whole milliseconds a turn may come so much too early; it counts all the same."""


class _Turns:
    """The turns of one loop, counted from when somebody first waited for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._began_s = loop.time()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    def enter(self, each_s: float) -> asyncio.Future[None]:
        """What is done when the next turn of that kind comes."""
        passed_s = self.loop.time() - self._began_s + min(_EARLY_S, each_s / 2)
        at_s = (passed_s // each_s + 1) * each_s
        at_ms = round(at_s * 1000)
        if at_ms not in self._waiting:
            self._waiting[at_ms] = []
            self.loop.call_at(self._began_s + at_s, self._begin, at_ms)
        turn: asyncio.Future[None] = self.loop.create_future()
        self._waiting[at_ms].append(turn)
        return turn

    def _begin(self, at_ms: int) -> None:
        for turn in self._waiting.pop(at_ms):
            if not turn.done():
                turn.set_result(None)


_turns: _Turns | None = None


async def next_turn(each_s: float) -> None:
    """Sleep until the next of the turns that come every `each_s` seconds, which is that long at the
    most."""
    global _turns
    loop = asyncio.get_running_loop()
    if _turns is None or _turns.loop is not loop:
        _turns = _Turns(loop)
    await _turns.enter(each_s)
