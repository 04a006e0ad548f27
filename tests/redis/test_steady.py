"""A node's clock that jumps forward calls nothing early and takes nothing out of anyone's hand."""

from __future__ import annotations

import pytest

from dq.core import clock
from dq.queue import steady
from dq.queue.records import Verdict
from dq.queue.steady import SteadyClock
from tests.redis.desk import T0, Desk

DAY_MS = 86_400_000


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Our own clock, turned by the test."""
    at = [1_000.0]
    monkeypatch.setattr(clock, "boot_ms", lambda: at[0])
    return at


async def forward(desk: Desk, watch: SteadyClock) -> tuple[int, int]:
    """By the desk's clock, which the script takes for the node's own."""
    return await desk.store.forward(desk.bucket, T0 + desk.now, steady=watch)


async def test_what_is_due_only_by_a_jump_waits_and_what_is_due_goes_on(
    desk: Desk, boot: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    watch = SteadyClock("node")
    await desk.push("soon", 1_000)
    await desk.push("tomorrow", DAY_MS)
    assert (await forward(desk, watch))[0] == 0
    desk.now += DAY_MS + 500
    boot[0] += 500
    assert await forward(desk, watch) == (0, 0), "seen before anything is moved"
    assert "jumped forward by 86400.0 s" in caplog.text
    assert (await forward(desk, watch))[0] == 0
    boot[0] += 501
    assert (await forward(desk, watch))[0] == 1, "soon, by the old reckoning"
    desk.now -= DAY_MS  # somebody has set it right
    desk.now += steady.HOLD_MS
    boot[0] += steady.HOLD_MS
    assert (await forward(desk, watch))[0] == 0
    assert desk.raw("due")


async def test_a_clock_that_stays_ahead_is_followed_after_a_while(
    desk: Desk, boot: list[float]
) -> None:
    watch = SteadyClock("node")
    await desk.push("tomorrow", DAY_MS)
    await forward(desk, watch)
    desk.now += DAY_MS
    assert await forward(desk, watch) == (0, 0)
    desk.now += steady.HOLD_MS
    boot[0] += steady.HOLD_MS
    assert (await forward(desk, watch))[0] == 1


async def test_a_clock_that_goes_to_and_fro_is_never_followed(
    desk: Desk, boot: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    watch = SteadyClock("node")
    await desk.push("tomorrow", DAY_MS)
    await forward(desk, watch)
    for _ in range(5):
        desk.now += DAY_MS
        assert await forward(desk, watch) == (0, 0)
        assert (await forward(desk, watch))[0] == 0
        desk.now -= DAY_MS
        assert (await forward(desk, watch))[0] == 0
        assert "right again" in caplog.text and not watch.is_held
        desk.now += steady.HOLD_MS // 3
        boot[0] += steady.HOLD_MS // 3
        await forward(desk, watch)
    assert "is followed from now on" not in caplog.text


async def test_while_it_is_held_the_node_itself_is_asked(desk: Desk) -> None:
    watch = SteadyClock("node")
    assert await desk.store.forward(desk.bucket, steady=watch) == (0, -1)
    own_ms = int((await desk.bucket.node.client.time())[0]) * 1000
    watch.see_jump(own_ms + DAY_MS)
    assert watch.is_held
    await desk.store.rescue(desk.bucket, b"the-heir", 1, steady=watch)
    assert watch.is_held, "a rescue by the time that it was given says nothing of the node's"
    await desk.store.forward(desk.bucket, steady=watch)
    assert not watch.is_held


async def test_a_clock_that_is_slow_or_set_back_is_followed_at_once(
    desk: Desk, boot: list[float]
) -> None:
    watch = SteadyClock("node")
    await desk.push("1", 8_000)
    await forward(desk, watch)
    desk.now -= DAY_MS
    assert (await forward(desk, watch))[0] == 0
    desk.now += 4_000
    assert (await forward(desk, watch))[0] == 0, "set right in small steps"
    boot[0] += DAY_MS
    desk.now += DAY_MS + 4_000
    assert (await forward(desk, watch))[0] == 1, "the machine was asleep for a day"


async def test_no_lease_runs_out_by_a_jump(desk: Desk, boot: list[float]) -> None:
    watch = SteadyClock("node")
    await desk.push("1", 0)
    (held,) = await desk.lease()
    watch.see(T0 + desk.now)
    node_now = int((await desk.bucket.node.client.time())[0]) * 1000
    assert node_now < T0, "the desk's clock is ahead of the node's"
    watch._ahead_ms = node_now - DAY_MS - boot[0]
    rescued = await desk.store.rescue(desk.bucket, b"the-heir", 1, steady=watch)
    assert rescued.count == 0 and watch.now_ms() is not None
    await desk.settle(held, Verdict.DONE)
    assert not desk.jobs()
