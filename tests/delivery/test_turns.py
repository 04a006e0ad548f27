"""Who begins when hundreds begin together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dq.delivery.turns import AT_ONCE, Turns


async def test_an_endpoint_with_many_waits_no_longer_than_its_neighbour() -> None:
    begun: list[str] = []
    turns = Turns()

    async def begin(endpoint: str) -> None:
        begun.append(endpoint)

    for _ in range(300):
        turns.enter("hanging", begin("hanging"))
    for _ in range(3):
        turns.enter("well", begin("well"))
    await _until(lambda: len(begun) == 303)
    assert begun[:6] == ["hanging", "well"] * 3


async def test_the_loop_goes_on_between_the_turns() -> None:
    begun_in_turn: list[int] = []
    begun = 0
    turns = Turns()

    async def begin() -> None:
        nonlocal begun
        begun += 1

    for _ in range(50):
        turns.enter("one", begin())
    while begun < 50:
        before = begun
        await asyncio.sleep(0)
        begun_in_turn.append(begun - before)
    assert max(begun_in_turn) == AT_ONCE


async def test_what_comes_after_a_rest_is_begun_too() -> None:
    done = asyncio.Event()
    turns = Turns()
    for _ in range(2):
        done.clear()
        turns.enter("one", _set(done))
        await asyncio.wait_for(done.wait(), 5)


async def _set(done: asyncio.Event) -> None:
    done.set()


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_true():
            await asyncio.sleep(0)
