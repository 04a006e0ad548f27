"""forward: what has come due is made ready, at its time and never before."""

from __future__ import annotations

import pytest

from dq.queue.store import FORWARD_MOST
from tests.redis.desk import Desk


@pytest.mark.parametrize(
    ("now", "moved", "next_ms"),
    [(0, 0, 1_000), (999, 0, 1), (1_000, 1, 1_000), (1_999, 1, 1), (2_000, 2, -1), (9_000, 2, -1)],
)
async def test_forward(desk: Desk, now: int, moved: int, next_ms: int) -> None:
    await desk.push("1", 1_000)
    await desk.push("2", 2_000)
    desk.now = now
    assert await desk.forward() == (moved, next_ms)
    assert list(desk.places().values()).count("ready") == moved
    assert await desk.forward() == (0, next_ms), "once only"
    assert len(await desk.lease(10)) == moved


async def test_an_empty_bucket_has_no_next_due_time(desk: Desk) -> None:
    before = desk.keyspace()
    assert await desk.forward() == (0, -1)
    assert desk.keyspace() == before


async def test_a_call_moves_no_more_than_its_limit_and_says_that_the_rest_is_due(
    desk: Desk,
) -> None:
    desk.now = -1_000
    await desk.push_many([str(n) for n in range(FORWARD_MOST + 60)], due=-500)
    desk.now = 0
    assert await desk.forward(limit=10) == (10, 0)
    assert await desk.forward() == (FORWARD_MOST, 0)
    assert await desk.forward() == (50, -1)


async def test_consumers_are_woken_when_something_became_ready(desk: Desk) -> None:
    await desk.push("1", 1_000)
    await desk.forward()
    assert not desk.raw("work")
    desk.now = 1_000
    await desk.forward()
    assert desk.raw("work") == [b"1"]


async def test_jobs_of_a_topic_are_handed_out_by_their_due_times(desk: Desk) -> None:
    for id_, due in (("c", 30), ("a", 10), ("d", 300), ("b", 20)):
        await desk.push(id_, due)
    desk.now = 1_000
    await desk.forward()
    await desk.push("late", 500)
    await desk.push("early", -500)
    order = [held.job.id for held in await desk.lease(10)]
    assert order == ["early", "a", "b", "c", "d", "late"]


async def test_a_due_time_without_a_job_goes_quietly(desk: Desk) -> None:
    """A key that was lost must not stop the others."""
    await desk.push("1", 1_000)
    desk.client.zadd(desk.bucket.keys[2], {b"nothing.": desk.now})
    desk.now = 10**9
    assert await desk.forward() == (2, -1)
    assert desk.places() == {"t/1": "ready"}
