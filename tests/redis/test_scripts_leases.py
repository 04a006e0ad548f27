"""extend, give_back and rescue: leases that last longer, come back, or are taken from the dead."""

from __future__ import annotations

import dataclasses

import pytest

from dq.queue.records import Code, Verdict, digest_of
from tests.redis.desk import HEIR, T0, C, D, Desk, Held

LEASE = 13_000


async def one_running(desk: Desk, id_: str = "1", consumer: bytes = C) -> Held:
    await desk.push(id_, desk.now)
    (held,) = await desk.lease(consumer=consumer)
    return held


# extend


async def test_an_extended_lease_is_not_rescued_before_its_new_end(desk: Desk) -> None:
    held = await one_running(desk)
    assert await desk.store.extend(desk.bucket, [(*held.lease, T0 + 610_000)]) == 1
    desk.now = 609_999
    assert (await desk.rescue()).count == 0
    desk.now = 610_000
    assert (await desk.rescue()).count == 1


async def test_only_ones_own_leases_are_extended(desk: Desk) -> None:
    mine, lost = await one_running(desk, "1"), await one_running(desk, "2")
    digest, token = lost.lease
    await desk.give_back(lost)
    assert len(await desk.lease(consumer=D)) == 1
    before = desk.raw("leases")[digest]
    extended = await desk.store.extend(
        desk.bucket,
        [(digest, token, T0 + 99_000), (*mine.lease, T0 + 88_000), (b"unknown!", token, T0)],
    )
    assert extended == 1
    assert desk.raw("leases") == {mine.lease[0]: T0 + 88_000, digest: before}


# give_back


async def test_a_lease_given_back_was_no_attempt(desk: Desk) -> None:
    await desk.push("1", 0)
    (held,) = await desk.lease()
    assert await desk.give_back(held) == 1
    assert desk.place() == "ready"
    assert not desk.raw("crashes")
    (again,) = await desk.lease(consumer=D)
    assert again.job == held.job


async def test_only_ones_own_leases_are_given_back(desk: Desk) -> None:
    held = await one_running(desk)
    stale = dataclasses.replace(held, token=D + bytes(8))
    before = desk.keyspace()
    assert await desk.give_back(stale) == 0
    assert desk.keyspace() == before
    assert await desk.give_back(held, held) == 1


async def test_a_job_given_back_wakes_the_consumers(desk: Desk) -> None:
    held = await one_running(desk)
    desk.client.delete(desk.bucket.keys[15])
    await desk.give_back(held)
    assert desk.raw("work") == [b"1"]


# rescue


@pytest.mark.parametrize(
    ("now", "count"), [(0, 0), (LEASE - 1, 0), (LEASE, 1), (LEASE + 99_999, 1)]
)
async def test_leases_that_ran_out_come_back(desk: Desk, now: int, count: int) -> None:
    held = await one_running(desk)
    desk.now = now
    rescued = await desk.rescue()
    assert (rescued.count, rescued.poisoned) == (count, [])
    assert desk.place() == ("ready" if count else "running")
    if count:
        (again,) = await desk.lease(consumer=D)
        assert again.job == held.job, "it was no attempt that failed"


async def test_a_job_that_was_cancelled_meanwhile_is_not_called_after_it_is_given_back(
    desk: Desk,
) -> None:
    held = await one_running(desk, "1", C)
    assert await desk.cancel("1") is Code.RUNNING
    assert await desk.give_back(held) == 1
    assert await desk.lease(5, D) == []
    ((token, job),) = (await desk.rescue()).poisoned
    assert await desk.settle(Held(HEIR, token, job), Verdict.RETRY) is Code.CANCELLED
    assert desk.places() == {}


async def test_the_leases_of_a_dead_consumer_come_back_at_once_and_no_others(desk: Desk) -> None:
    for id_ in ("1", "2"):
        await one_running(desk, id_, C)
    other = await one_running(desk, "3", D)
    assert (await desk.rescue(C)).count == 2
    assert desk.places() == {"t/1": "ready", "t/2": "ready", "t/3": "running"}
    assert await desk.settle(other) is Code.SETTLED
    assert (await desk.rescue(C)).count == 0


async def test_a_call_rescues_no_more_than_its_limit(desk: Desk) -> None:
    await desk.push_many([str(n) for n in range(25)])
    await desk.lease(25)
    assert (await desk.rescue(C, limit=10)).count == 10
    desk.now = LEASE
    assert (await desk.rescue(limit=10)).count == 10
    assert (await desk.rescue(limit=10)).count == 5
    assert not desk.raw("leases")


async def test_a_job_that_kills_its_consumer_again_and_again_is_poison(desk: Desk) -> None:
    await desk.push("1", 0)
    job = await desk.job()
    for _ in range(2):
        await desk.lease()
        assert (await desk.rescue(C)).poisoned == []
    await desk.lease()
    ((token, poisoned),) = (await desk.rescue(C)).poisoned
    assert poisoned == job
    assert desk.place() == "running", "in the hand of the one who settles it"
    assert await desk.lease(5) == []
    assert await desk.settle(Held(HEIR, token, job), Verdict.DEAD) is Code.SETTLED
    assert desk.places() == {}
    assert not desk.raw("crashes")


async def test_poison_is_counted_in_a_row(desk: Desk) -> None:
    await desk.push("1", 0)
    for _ in range(3):
        for _ in range(2):
            await desk.lease()
            assert (await desk.rescue(C)).poisoned == []
        (held,) = await desk.lease()
        await desk.settle(held, Verdict.RETRY, 0)


async def test_poison_whose_settling_was_lost_is_told_again(desk: Desk) -> None:
    await desk.push("1", 0)
    await desk.lease()
    await desk.rescue(C, most_losses=2)
    await desk.lease()
    assert len((await desk.rescue(C, most_losses=2)).poisoned) == 1
    desk.now += LEASE
    assert len((await desk.rescue(most_losses=2)).poisoned) == 1
    assert desk.place() == "running"


async def test_a_new_version_of_a_poisonous_job_is_a_fresh_job(desk: Desk) -> None:
    await desk.push("1", 0)
    for _ in range(2):
        await desk.lease()
        await desk.rescue(C)
    await desk.push("1", 0, body=b"healed")
    await desk.lease()
    assert (await desk.rescue(C)).poisoned == []


async def test_a_lease_without_a_holder_or_a_job_goes(desk: Desk) -> None:
    """What a partial loss leaves behind must not be found again and again."""
    held = await one_running(desk, "1")
    await one_running(desk, "2")
    desk.client.hdel(desk.bucket.keys[8], held.lease[0])
    desk.client.hdel(desk.bucket.keys[1], digest_of("t", "2"))
    desk.client.hset(desk.bucket.keys[10], "nt", 1)
    desk.now = LEASE
    assert (await desk.rescue()).count == 2
    assert (await desk.rescue()).count == 0
    assert desk.places() == {"t/1": "ready"}


async def test_a_cancelled_job_whose_consumer_died_is_not_called_again(desk: Desk) -> None:
    """It was told "running, no retry will follow": it ends instead."""
    await desk.bring("closed")
    rescued = await desk.rescue(C)
    assert await desk.lease(5) == []
    ((token, job),) = rescued.poisoned
    assert job.is_closed
    assert await desk.settle(Held(HEIR, token, job), Verdict.RETRY) is Code.CANCELLED
    assert desk.places() == {}


# answers of lease that were lost on their way


async def test_what_a_consumer_never_heard_of_is_given_to_it_again(desk: Desk) -> None:
    heard = await one_running(desk)
    for id_ in ("2", "3"):
        await desk.push(id_, 0)
    last = desk.last_heard[C]
    lost = await desk.lease(2)
    desk.last_heard[C] = last
    others = await one_running(desk, "4", D)
    again = await desk.lease(5)
    assert {one.job.id for one in again} == {"2", "3"}
    assert not {one.token for one in again} & {one.token for one in lost}
    assert not desk.raw("crashes"), "nobody died with them in hand"
    assert desk.raw("holders").keys() == {one.lease[0] for one in (heard, others, *again)}


async def test_a_lost_lease_of_a_cancelled_job_ends(desk: Desk) -> None:
    await one_running(desk)
    await desk.cancel()
    desk.last_heard[C] = 0
    assert await desk.lease(5) == []
    assert len((await desk.rescue()).poisoned) == 1, "it is for the heir to settle"


async def test_a_call_that_was_overtaken_takes_nothing(desk: Desk) -> None:
    await desk.push("1", 0)
    await desk.push("2", 0)
    overtaken = desk.tokens + 1
    desk.tokens += 5
    (held,) = await desk.lease(1)
    late = await desk.store.lease(desk.bucket, C, overtaken, 5, now_ms=T0 + desk.now)
    assert (late.state, late.jobs) == ("OK", [])
    assert desk.raw("holders").keys() == {held.lease[0]}


async def test_what_was_lost_before_leases_are_said_again_comes_back_too(desk: Desk) -> None:
    heard = await one_running(desk)
    await desk.push("2", 0)
    last = desk.last_heard[C]
    await desk.lease()
    desk.last_heard[C] = last
    job = (heard.job, heard.token, T0 + LEASE)
    assert await desk.store.reassert(desk.bucket, C, last, [job]) == 1
    (again,) = await desk.lease(5)
    assert again.job.id == "2"
