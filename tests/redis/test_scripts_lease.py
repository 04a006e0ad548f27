"""lease: who is handed what, in which shares, and when nothing is handed out at all."""

from __future__ import annotations

from collections import Counter

import pytest

from dq.queue.records import Code, Verdict
from dq.queue.store import LEASE_MOST
from tests.redis.desk import T0, A, B, C, D, Desk


async def saturate(desk: Desk, count: int, priorities: tuple[int, ...] = (0, 1, 2)) -> None:
    for priority in priorities:
        ids = [f"{priority}-{n}" for n in range(count)]
        await desk.push_many(ids, priority=priority)


async def test_lease(desk: Desk) -> None:
    await desk.push("1", 0)
    job = await desk.job()
    leased = await desk.ask_lease(1, lease_ms=7_000)
    ((token, leased_job),) = leased.jobs
    assert (leased.state, leased.now_ms, leased.wait_ms) == ("OK", T0, -1)
    assert leased_job == job
    assert token == C + (1).to_bytes(8, "big")
    assert desk.places() == {"t/1": "running"}
    assert list(desk.raw("leases").values()) == [T0 + 7_000]
    assert desk.raw("gauges") == {b"nt": b"1"}
    assert (await desk.store.find(desk.bucket, "t", "1")) == (job, "running")
    assert not (await desk.lease(5, D)), "once only"


async def test_nothing_ready_changes_nothing(desk: Desk) -> None:
    await desk.push("1", 1_000)
    before = desk.keyspace()
    assert await desk.lease(10) == []
    assert desk.keyspace() == before


async def test_the_most_that_one_call_may_lease(desk: Desk) -> None:
    await desk.push_many([str(n) for n in range(LEASE_MOST + 1)])
    held = await desk.lease(LEASE_MOST)
    assert len(held) == len({one.token for one in held}) == LEASE_MOST
    assert len(await desk.lease(LEASE_MOST)) == 1


@pytest.mark.parametrize("want", [1, 3, 10, 25])
async def test_priorities_share_five_three_two_when_all_have_work(desk: Desk, want: int) -> None:
    await saturate(desk, 160)
    counts: Counter[int] = Counter()
    total = 0
    while total < 250:
        held = await desk.lease(want)
        assert len(held) == want
        total += want
        counts.update(one.job.priority for one in held)
    assert abs(counts[0] - total * 0.5) <= 2
    assert abs(counts[1] - total * 0.3) <= 2
    assert abs(counts[2] - total * 0.2) <= 2


async def test_every_ten_leases_hold_all_priorities(desk: Desk) -> None:
    """Nobody starves, not even for a moment."""
    await saturate(desk, 60)
    for _ in range(10):
        ten = [(await desk.lease(1))[0].job.priority for _ in range(10)]
        assert Counter(ten) == {0: 5, 1: 3, 2: 2}


@pytest.mark.parametrize("present", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("want", [1, 10])
async def test_a_share_that_is_not_wanted_goes_to_the_others(
    desk: Desk, present: tuple[int, ...], want: int
) -> None:
    await saturate(desk, 30, present)
    total = 30 * len(present)
    for _ in range(total // want):
        assert len(await desk.lease(want)) == want
    assert await desk.lease(want) == []


@pytest.mark.parametrize("want", [1, 7, 50])
async def test_topics_take_turns(desk: Desk, want: int) -> None:
    """A backlog of one topic does not hold up the other."""
    await desk.push_many([str(n) for n in range(400)], topic="backlog")
    await desk.push_many([str(n) for n in range(50)], topic="other")
    counts: Counter[str] = Counter()
    total = 0
    while total < 100:
        held = await desk.lease(min(want, 100 - total))
        total += len(held)
        counts.update(one.job.topic for one in held)
    assert abs(counts["other"] - 50) <= 2


async def test_a_newcomer_waits_for_one_round_only(desk: Desk) -> None:
    for topic in "abcde":
        await desk.push_many([str(n) for n in range(20)], topic=topic)
    await desk.lease(20)
    await desk.push("1", 0, topic="new")
    six = {(await desk.lease(1))[0].job.topic for _ in range(6)}
    assert six == {"a", "b", "c", "d", "e", "new"}


@pytest.mark.parametrize("want", [1, 50, 150])
async def test_more_topics_than_one_look_takes_in(desk: Desk, want: int) -> None:
    for n in range(150):
        await desk.push("1", 0, topic=f"topic{n}", priority=n % 3)
    topics: list[str] = []
    for _ in range(150 // want):
        held = await desk.lease(want)
        assert len(held) == want
        topics += [one.job.topic for one in held]
    assert len(set(topics)) == 150


async def test_topics_to_be_passed_over_are_left_and_keep_their_turn(desk: Desk) -> None:
    await desk.push_many(["1", "2"], topic="bad")
    await desk.push_many(["1", "2"], topic="good")
    held = await desk.lease(10, passed_over=["bad"])
    assert [one.job.topic for one in held] == ["good"] * 2
    assert [one.job.topic for one in await desk.lease(10)] == ["bad"] * 2


async def test_many_topics_to_be_passed_over_hide_no_other(desk: Desk) -> None:
    bad = [f"bad{n:03d}" for n in range(300)]
    for topic in bad:
        await desk.push("1", 0, topic=topic)
    await desk.push("1", 0, topic="good")
    held = await desk.lease(1, passed_over=bad)
    assert [one.job.topic for one in held] == ["good"]


async def test_sleepers_are_woken_when_more_is_left_than_was_taken(desk: Desk) -> None:
    await desk.push_many([str(n) for n in range(3)])
    work = desk.bucket.keys[15]
    desk.client.delete(work)
    await desk.lease(2)
    assert desk.client.llen(work) == 1
    desk.client.delete(work)
    await desk.lease(2)
    assert desk.client.llen(work) == 0


async def test_topics_whose_names_begin_alike_are_kept_apart(desk: Desk) -> None:
    names = ["a", "aa", "a.", "a-", "a0", "A", "0a", "1", "11"]
    for topic in names:
        await desk.push("1", 0, topic=topic)
        await desk.push("2", 0, topic=topic, priority=0)
    held = await desk.lease(100)
    assert Counter(one.job.topic for one in held) == dict.fromkeys(names, 2)
    desk.client.delete(desk.bucket.keys[15])
    for one in held:
        assert await desk.settle(one) is Code.SETTLED


# When nothing is handed out


async def test_another_epoch_is_told(desk: Desk) -> None:
    await desk.push("1", 0)
    before = desk.keyspace()
    desk.bucket.epoch = b"before the wipe"
    leased = await desk.ask_lease(5)
    assert (leased.state, leased.epoch, leased.jobs) == ("EPOCH", b"epoch-1", [])
    desk.bucket.epoch = b"epoch-1"
    assert desk.keyspace() == before


async def test_nothing_while_a_known_writer_had_more_applied_than_is_here(desk: Desk) -> None:
    await desk.push("1", 0, writer=A)
    await desk.push("2", 0, writer=B)
    for high in ([(A, 2)], [(A, 1), (B, 2)], [(b"unknown!", 1), (A, 1)]):
        assert (await desk.ask_lease(5, high=high)).state == "BEHIND"
    assert desk.raw("holders") is None
    await desk.push("1", 5_000, writer=A)
    desk.now = 5_000
    leased = await desk.ask_lease(5, high=[(A, 2), (B, 1)])
    assert [job.id for _, job in leased.jobs] == ["2"]


async def test_after_a_loss_consumers_have_a_moment_to_say_what_they_hold(desk: Desk) -> None:
    await desk.push("1", 0)
    assert (await desk.ask_lease(5, high=[(A, 2)])).state == "BEHIND"
    await desk.push("2", 0)
    desk.now = 700
    leased = await desk.ask_lease(5, high=[(A, 2)])
    assert (leased.state, leased.wait_ms) == ("HOLD", 800)
    desk.now = 1_500
    assert len(await desk.lease(5, high=[(A, 2)])) == 2


async def test_a_consumer_whose_leases_were_lost_is_told_and_says_them_again(desk: Desk) -> None:
    await desk.push_many(["1", "2"])
    keep = {key: desk.client.dump(key) for key in desk.client.keys("{dq*")}
    first, second = await desk.lease(2)
    desk.client.delete(*desk.client.keys("{dq*"))
    for key, value in keep.items():
        desk.client.restore(key, 0, value)
    assert (await desk.ask_lease(5, last_token=2)).state == "BEHIND"
    until = T0 + 60_000
    lease = (first.job, first.token, until)
    assert await desk.store.reassert(desk.bucket, C, 2, [lease]) == 1
    assert await desk.store.reassert(desk.bucket, C, 2, [lease]) == 1, "as often as one likes"
    assert (desk.place(first.job.id), desk.place(second.job.id)) == ("running", "ready")
    desk.now = 2_000
    (other,) = await desk.lease(5, D)
    assert other.job == second.job
    assert await desk.settle(first, Verdict.RETRY, 9_000) is Code.SETTLED


async def test_a_lease_said_again_takes_nothing_from_another_consumer(desk: Desk) -> None:
    await desk.push("1", 0)
    (lost,) = await desk.lease()
    await desk.rescue(C)
    (held,) = await desk.lease(consumer=D)
    before = desk.raw("holders")
    lease = (lost.job, lost.token, T0 + 60_000)
    assert await desk.store.reassert(desk.bucket, C, 1, [lease]) == 0
    assert desk.raw("holders") == before
    assert await desk.settle(held) is Code.SETTLED
