"""limit: topics that are held, that may have so many callbacks in flight, or so many a second."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from dq.queue.records import Code, Verdict
from tests.redis.desk import C, D, Desk, Held

HELD = (1, 0, 0.0)
FREE = (0, 0, 0.0)


def concurrency(most: int) -> tuple[int, int, float]:
    return (0, most, 0.0)


def rate(per_second: float) -> tuple[int, int, float]:
    return (0, 0, per_second)


# Held


async def test_a_held_topic_is_not_handed_out_and_holds_up_no_other(desk: Desk) -> None:
    await desk.push_many(["1", "2"], topic="held")
    await desk.push_many(["1", "2"], topic="other")
    assert await desk.limit(1, held=HELD)
    assert [one.job.topic for one in await desk.lease(10)] == ["other"] * 2
    assert await desk.lease(10) == []


@pytest.mark.parametrize("how", ["named free", "no longer named", "another limit"])
@pytest.mark.parametrize("was_looked_at", [True, False])
async def test_a_held_topic_comes_back_when_it_is_free(
    desk: Desk, how: str, was_looked_at: bool
) -> None:
    await desk.limit(1, t=HELD)
    await desk.push_many(["1", "2"])
    await desk.push("3", 0, priority=0)
    if was_looked_at:
        assert await desk.lease(10) == []
    desk.client.delete(desk.bucket.keys[15])
    limits = {"named free": {"t": FREE}, "another limit": {"t": concurrency(9)}}.get(how, {})
    assert await desk.limit(2, **limits)
    assert desk.raw("work"), "consumers are woken"
    assert len(await desk.lease(10)) == 3


async def test_what_is_in_flight_when_its_topic_is_held_ends_as_usual(desk: Desk) -> None:
    await desk.push_many(["1", "2"])
    held, _ = await desk.lease(2)
    await desk.limit(1, t=HELD)
    assert await desk.settle(held, Verdict.RETRY, 0) is Code.SETTLED
    assert await desk.lease(10) == []
    await desk.limit(2)
    assert len(await desk.lease(10)) == 1


async def test_older_limits_change_nothing(desk: Desk) -> None:
    await desk.limit(7, t=HELD)
    before = desk.keyspace()
    assert not await desk.limit(6)
    assert desk.keyspace() == before
    assert await desk.limit(7, t=HELD), "the same may be said again"


# Concurrency


async def test_no_more_are_in_flight_than_the_topic_allows(desk: Desk) -> None:
    """Over two consumers, with outcomes of all kinds, in a random order."""
    chance = random.Random(7)
    await desk.push_many([str(n) for n in range(120)])
    await desk.limit(1, t=concurrency(5))
    in_hand: list[Held] = []
    for _ in range(400):
        in_hand += await desk.lease(chance.randint(1, 8), chance.choice([C, D]))
        assert len(in_hand) <= 5
        desk.check()
        if in_hand and chance.random() < 0.7:
            one = in_hand.pop(chance.randrange(len(in_hand)))
            if chance.random() < 0.2:
                assert await desk.give_back(one) == 1
            else:
                verdict = chance.choice([Verdict.DONE, Verdict.DEAD, Verdict.RETRY])
                assert await desk.settle(one, verdict, 0) is Code.SETTLED
    finished = 120 - len(desk.jobs())
    assert finished > 100, "and it did not stand still"


async def test_a_full_topic_leaves_the_line_to_others_and_comes_back(desk: Desk) -> None:
    await desk.push_many(["1", "2", "3"], topic="small")
    await desk.push_many(["1", "2"], topic="other")
    await desk.limit(1, small=concurrency(1))
    held = await desk.lease(10)
    assert sorted(one.job.topic for one in held) == ["other", "other", "small"]
    (small,) = [one for one in held if one.job.topic == "small"]
    assert await desk.lease(10, D) == []
    desk.client.delete(desk.bucket.keys[15])
    await desk.settle(small)
    assert desk.raw("work"), "consumers are woken"
    assert len(await desk.lease(10, D)) == 1


@pytest.mark.parametrize("how", ["settled", "retried", "given back", "dead", "expired"])
async def test_whatever_ends_a_lease_makes_room(desk: Desk, how: str) -> None:
    await desk.push_many(["1", "2"])
    await desk.limit(1, t=concurrency(1))
    (held,) = await desk.lease(10)
    assert await desk.lease(10) == []
    if how == "settled":
        await desk.settle(held)
    elif how == "retried":
        await desk.settle(held, Verdict.RETRY, 9_000)
    elif how == "given back":
        await desk.give_back(held)
    elif how == "dead":
        await desk.rescue(C)
    else:
        desk.now += 13_000
        await desk.rescue()
    assert len(await desk.lease(10)) == 1


async def test_a_change_of_the_limit_counts_what_is_in_flight(desk: Desk) -> None:
    await desk.push_many([str(n) for n in range(9)])
    held = await desk.lease(3)
    await desk.limit(1, t=concurrency(2))
    assert await desk.lease(10) == []
    await desk.settle(held[0])
    assert await desk.lease(10) == [], "still as many as it may have"
    await desk.limit(2, t=concurrency(4))
    assert len(await desk.lease(10)) == 2
    await desk.limit(3)
    assert len(await desk.lease(10)) == 4


# Rate


def most_in_any_window(starts: list[int], window_ms: int) -> int:
    return max(bisect_left(starts, at + window_ms) - i for i, at in enumerate(starts))


@pytest.mark.parametrize("per_second", [0.5, 1.0, 3.0, 30.0, 100.0, 700.0])
async def test_a_rate_is_never_exceeded_and_is_reached(desk: Desk, per_second: float) -> None:
    """However often two consumers ask. A fast rate comes in bursts of at most 20 ms."""
    chance = random.Random(11)
    length = 3_000 if per_second >= 3 else 9_000
    expected = length * per_second / 1000
    await desk.push_many([str(n) for n in range(int(expected) + 50)])
    await desk.limit(1, t=rate(per_second))
    starts: list[int] = []
    while desk.now < length:
        held = await desk.lease(chance.randint(1, 20), chance.choice([C, D]))
        starts += [desk.now] * len(held)
        desk.now += chance.randint(1, max(2, int(200 / per_second)))
    burst = max(1.0, 0.02 * per_second)
    for window_ms in (1, 10, 100, 333, 1_000, 2_000):
        allowed = window_ms * per_second / 1000 + burst
        assert most_in_any_window(starts, window_ms) <= allowed, window_ms
    assert len(starts) >= expected * 0.6


@pytest.mark.parametrize("per_second", [0.5, 1.0, 3.0, 7.0, 45.0])
async def test_the_wait_that_is_told_is_exact(desk: Desk, per_second: float) -> None:
    """Not a millisecond earlier anything is handed out, and just then something is."""
    await desk.push_many([str(n) for n in range(30)])
    await desk.limit(1, t=rate(per_second))
    assert len(await desk.lease(10)) == 1
    for number in range(1, 20):
        leased = await desk.ask_lease(10)
        assert leased.jobs == []
        assert 0 < leased.wait_ms <= 1000 / per_second + 1
        desk.now += leased.wait_ms - 1
        again = await desk.ask_lease(10)
        assert (again.jobs, again.wait_ms) == ([], 1)
        desk.now += 1
        assert len(await desk.lease(10)) == 1
        assert desk.now >= number * 1000 / per_second - 1
        assert desk.now <= number * (1000 / per_second + 1)


async def test_the_shortest_of_several_waits_is_told(desk: Desk) -> None:
    for topic in ("slow", "fast", "free"):
        await desk.push_many(["1", "2"], topic=topic)
    await desk.limit(1, slow=rate(0.1), fast=rate(2.0))
    leased = await desk.ask_lease(10)
    assert sorted(job.topic for _, job in leased.jobs) == ["fast", "free", "free", "slow"]
    assert leased.wait_ms == 500
    desk.now = 100
    assert (await desk.ask_lease(10)).wait_ms == 400


async def test_time_without_jobs_is_not_saved_up(desk: Desk) -> None:
    await desk.limit(1, t=rate(2.0))
    desk.now = 60_000
    await desk.push_many([str(n) for n in range(9)])
    assert len(await desk.lease(9)) == 1
    desk.now += 499
    assert await desk.lease(9) == []


async def test_rate_and_concurrency_hold_together(desk: Desk) -> None:
    await desk.push_many([str(n) for n in range(9)])
    await desk.limit(1, t=(0, 2, 10.0))
    first = await desk.lease(9)
    desk.now += 100
    second = await desk.lease(9)
    desk.now += 100
    assert (len(first), len(second), await desk.lease(9)) == (1, 1, [])
    await desk.settle(first[0])
    assert len(await desk.lease(9)) == 1
    await desk.settle(second[0])
    assert await desk.lease(9) == [], "room, but not the time yet"
