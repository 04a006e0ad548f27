"""settle: how an attempt ends, whose lease it takes, and what was pushed meanwhile."""

from __future__ import annotations

import dataclasses

import pytest

from dq.queue import records
from dq.queue.records import Code, Verdict
from tests.redis.desk import REPLACE, T0, B, C, D, Desk, Held

DONE, RETRY, DEAD = Verdict.DONE, Verdict.RETRY, Verdict.DEAD


async def one_running(desk: Desk, consumer: bytes = C) -> Held:
    await desk.push(due=0, body=b"old")
    (held,) = await desk.lease(consumer=consumer)
    return held


@pytest.mark.parametrize(
    ("verdict", "due", "place"),
    [
        (DONE, 0, "gone"),
        (DEAD, 0, "gone"),
        (RETRY, 3_000, "delayed +3000"),
        (RETRY, 0, "ready"),
        (RETRY, -5, "ready"),
    ],
)
async def test_settle(desk: Desk, verdict: Verdict, due: int, place: str) -> None:
    held = await one_running(desk)
    assert await desk.settle(held, verdict, due) is Code.SETTLED
    assert desk.place() == place
    assert not desk.raw("holders")
    assert not desk.raw("leases")
    assert not desk.raw("gauges")


async def test_each_retry_counts_and_moves_the_due_time(desk: Desk) -> None:
    held = await one_running(desk)
    for attempt in range(1, 4):
        due = desk.now + 1_000
        await desk.settle(held, RETRY, due)
        job = await desk.job()
        assert (job.retries, job.due_ms, job.version) == (attempt, T0 + due, held.job.version)
        desk.now = due
        await desk.forward()
        (held,) = await desk.lease()
        assert held.job == job


@pytest.mark.parametrize("verdict", [DONE, RETRY, DEAD])
async def test_a_lease_ends_one_attempt_only(desk: Desk, verdict: Verdict) -> None:
    held = await one_running(desk)
    await desk.settle(held, RETRY, 0)
    keyspace = desk.standing()
    assert await desk.settle(held, verdict, 500) is Code.STALE
    assert desk.standing() == keyspace


@pytest.mark.parametrize("verdict", [DONE, RETRY, DEAD])
@pytest.mark.parametrize("consumer", [C, D])
async def test_a_lease_that_was_rescued_is_somebody_elses(
    desk: Desk, verdict: Verdict, consumer: bytes
) -> None:
    held = await one_running(desk)
    desk.now += 13_000
    assert (await desk.rescue()).count == 1
    assert desk.place() == "ready"
    keyspace = desk.standing()
    assert await desk.settle(held, verdict, 500) is Code.STALE, "ready again, not leased yet"
    assert desk.standing() == keyspace
    (again,) = await desk.lease(consumer=consumer)
    keyspace = desk.standing()
    assert await desk.settle(held, verdict, 500) is Code.STALE, "in another's hand"
    assert desk.standing() == keyspace
    assert await desk.settle(again) is Code.SETTLED


async def test_a_lease_that_ran_out_but_was_not_rescued_still_counts(desk: Desk) -> None:
    held = await one_running(desk)
    desk.now += 60_000
    assert await desk.settle(held) is Code.SETTLED
    assert desk.places() == {}


@pytest.mark.parametrize(
    ("verdict", "place"), [(DONE, "gone"), (RETRY, "delayed +500"), (DEAD, "gone")]
)
@pytest.mark.parametrize("due", [0, 900])
async def test_a_lease_that_redis_has_lost_is_still_ones_own(
    desk: Desk, verdict: Verdict, place: str, due: int
) -> None:
    """The node fell back to before the lease: the job stands as it stood then."""
    await desk.push(due=due)
    keep = {key: desk.client.dump(key) for key in desk.client.keys("{dq*")}
    desk.now = due
    await desk.forward()
    (held,) = await desk.lease()
    desk.client.delete(*desk.client.keys("{dq*"))
    for key, value in keep.items():
        desk.client.restore(key, 0, value)
    desk.now = 0
    assert await desk.settle(held, verdict, 500) is Code.SETTLED
    assert desk.place() == place


async def test_a_crash_is_forgotten_when_an_attempt_ends(desk: Desk) -> None:
    await one_running(desk)
    await desk.rescue(C)
    assert desk.raw("crashes")
    (held,) = await desk.lease()
    await desk.settle(held, RETRY, 0)
    assert not desk.raw("crashes")


@pytest.mark.parametrize("verdict", [DONE, RETRY, DEAD])
@pytest.mark.parametrize(
    ("due", "between", "after"),
    [
        (0, "older runs", "ready"),
        (2_000, "delayed +2000 & older runs", "delayed +2000"),
    ],
)
async def test_a_version_pushed_meanwhile_waits_until_the_old_attempt_has_ended(
    desk: Desk, verdict: Verdict, due: int, between: str, after: str
) -> None:
    held = await one_running(desk)
    assert await desk.push(due=due, body=b"new", how=REPLACE, writer=B) is Code.REPLACED
    assert desk.place() == between
    assert await desk.lease(5, D) == [], "not while the old body is being called back"
    desk.client.delete(*desk.bucket.keys[14:16])
    assert await desk.settle(held, verdict, 700) is Code.CHANGED
    assert desk.place() == after
    assert bool(desk.raw("work")) == (due == 0), "consumers are woken"
    desk.now = due
    await desk.forward()
    (new,) = await desk.lease(5, D)
    assert (new.job.body, new.job.retries) == (b"new", 0)


async def test_a_version_that_comes_due_meanwhile_waits_too(desk: Desk) -> None:
    held = await one_running(desk)
    await desk.push(due=500, body=b"new")
    desk.now = 500
    assert await desk.forward() == (1, -1)
    assert desk.place() == "older runs"
    assert await desk.lease(5, D) == []
    assert await desk.settle(held) is Code.CHANGED
    assert desk.place() == "ready"


@pytest.mark.parametrize("how", ["expires", "is given back", "dies"])
async def test_the_waiting_version_comes_however_the_old_lease_ends(desk: Desk, how: str) -> None:
    held = await one_running(desk)
    await desk.push(due=0, body=b"new")
    if how == "expires":
        desk.now += 13_000
        await desk.rescue()
    elif how == "dies":
        await desk.rescue(C)
    else:
        await desk.give_back(held)
    assert desk.place() == "ready"
    assert not desk.raw("crashes"), "the new version was in nobody's hand"
    (new,) = await desk.lease(5, D)
    assert new.job.body == b"new"


async def test_the_outcome_of_an_older_version_does_not_touch_a_newer_lease(desk: Desk) -> None:
    held = await one_running(desk)
    await desk.push(due=0, body=b"new")
    await desk.rescue(C)
    (new,) = await desk.lease(consumer=D)
    keyspace = desk.standing()
    assert await desk.settle(held) is Code.CHANGED
    assert desk.standing() == keyspace
    assert await desk.settle(new) is Code.SETTLED


async def test_a_move_while_it_runs_loses_against_the_retry_and_the_later_one_wins(
    desk: Desk,
) -> None:
    held = await one_running(desk)
    assert await desk.move(9_000) is Code.BUSY
    await desk.settle(held, RETRY, 700)
    assert await desk.move(9_000) is Code.MOVED
    assert desk.place() == "delayed +9000"


async def test_what_is_finished_is_not_settled_again(desk: Desk) -> None:
    held = await one_running(desk)
    await desk.settle(held)
    keyspace = desk.standing()
    for verdict in Verdict:
        assert await desk.settle(held, verdict, 500) is Code.ABSENT
    assert desk.standing() == keyspace


async def test_a_token_of_another_lease_of_the_same_job_counts_for_nothing(desk: Desk) -> None:
    held = await one_running(desk)
    forged = dataclasses.replace(held, token=D + bytes(8))
    keyspace = desk.standing()
    assert await desk.settle(forged) is Code.STALE
    assert desk.standing() == keyspace


async def test_a_retry_comes_after_a_move_from_a_host_whose_clock_is_ahead(desk: Desk) -> None:
    """Or the job would be due at once again, and all its retries be gone in a moment."""
    await desk.push(due=1_000)
    ahead = desk.stamp + 60_000_000
    assert await desk.write(records.move(ahead, await desk.job(), T0), B) is Code.MOVED
    (held,) = await desk.lease()
    assert await desk.settle(held, RETRY, 700) is Code.SETTLED
    assert desk.place() == "delayed +700"
