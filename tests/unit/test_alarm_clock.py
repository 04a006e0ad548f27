"""The clock that wakes a timer: once, at the time that was asked for last, never before."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

from dq.workers.alarm_clock import AlarmClock


async def test_it_rings_once_and_not_before_its_time() -> None:
    woken = asyncio.Event()
    with closing(AlarmClock(woken)) as clock:
        for after_s in (0.0003, 0.0111, 0.0, -5.0):
            began_s = time.monotonic()
            clock.set(after_s)
            assert not woken.is_set()
            await woken.wait()
            assert time.monotonic() - began_s >= after_s
            woken.clear()
        await asyncio.sleep(0.02)
        assert not woken.is_set(), "once"


async def test_the_last_time_that_was_asked_for_counts() -> None:
    woken = asyncio.Event()
    with closing(AlarmClock(woken)) as clock:
        clock.set(3600)
        clock.set(0.001)
        await woken.wait()
        woken.clear()
        clock.set(0.001)
        clock.set(3600)
        await asyncio.sleep(0.02)
        assert not woken.is_set()
