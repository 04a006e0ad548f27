"""Turns: who looks now and then is woken together with the others, and not too late."""

from __future__ import annotations

import asyncio
import time

from dq.core.pace import next_turn

EACH_S = 0.05


async def turns(each_s: float, count: int) -> list[float]:
    woken = []
    for _ in range(count):
        await next_turn(each_s)
        woken.append(time.monotonic())
    return woken


async def test_all_who_wait_for_a_turn_are_woken_in_it() -> None:
    loop, rounds = asyncio.get_running_loop(), []
    for _ in range(3):
        woken: list[int] = []

        async def wait(number: int, woken: list[int] = woken) -> None:
            await next_turn(EACH_S)
            woken.append(number)

        waiting = [loop.create_task(wait(number)) for number in range(5)]
        await waiting[0]
        await asyncio.sleep(0)
        rounds.append(woken)
    assert rounds == [[0, 1, 2, 3, 4]] * 3


async def test_turns_come_at_their_pace() -> None:
    began = time.monotonic()
    woken = await turns(EACH_S, 6)
    assert woken[-1] - began >= 5 * EACH_S - 0.01


async def test_a_slow_pace_falls_on_the_turns_of_a_fast_one() -> None:
    fast, slow = await asyncio.gather(turns(EACH_S, 8), turns(2 * EACH_S, 3))
    assert all(min(abs(at - other) for other in fast) < EACH_S / 2 for at in slow)


async def test_who_is_cancelled_takes_nobody_along() -> None:
    leaving, staying = (asyncio.create_task(next_turn(EACH_S)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    async with asyncio.timeout(10):
        await staying
    assert leaving.cancelled() or leaving.cancelling()
