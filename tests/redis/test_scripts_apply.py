"""apply: each record of a writer once, in order, whatever is repeated, cut, lost or comes late."""

from __future__ import annotations

import pytest

from dq.queue import records
from dq.queue.lane import APPLY_MOST
from dq.queue.records import NOTHING, Code, Verdict, digest_of
from tests.redis.desk import KEEP, REJECT, T0, A, B, C, Desk, Held

LOST = 100_000
"""When what was lost comes back: long after the bucket was begun."""


async def run(desk: Desk, id_: str = "1", writer: bytes = A) -> Held:
    """A job in hand of consumer C."""
    await desk.push(id_, 0, writer=writer)
    (held,) = await desk.lease()
    return held


async def lose_everything(desk: Desk) -> dict[bytes, list[bytes]]:
    """The node is wiped and begun anew under the same epoch; what each writer had sent."""
    epoch = desk.bucket.epoch
    desk.client.delete(*desk.client.keys("{dq*"))
    desk.now = LOST
    await desk.store.found(desk.bucket, epoch)
    logs, desk.sent = desk.sent, {}
    return logs


# Order


async def test_records_take_effect_in_order_within_one_call(desk: Desk) -> None:
    first, second = desk.push_record(due=100), desk.push_record(due=200)
    answer = await desk.apply(A, first, second, desk.push_record(how=REJECT))
    assert (answer.state, answer.position) == ("OK", 3)
    assert list(answer.codes) == [Code.CREATED, Code.REPLACED, Code.REJECTED]
    assert desk.place() == "delayed +200"


async def test_a_full_call_of_records_is_applied(desk: Desk) -> None:
    wanted = [desk.push_record(str(n)) for n in range(APPLY_MOST)]
    answer = await desk.apply(A, *wanted)
    assert answer.codes == bytes([Code.CREATED]) * APPLY_MOST


async def test_a_gap_is_told_and_nothing_is_done(desk: Desk) -> None:
    await desk.push("1")
    before = desk.keyspace()
    answer = await desk.apply(A, desk.push_record("3"), first=3)
    assert (answer.state, answer.position, answer.codes) == ("GAP", 1, b"")
    answer = await desk.apply(B, desk.push_record("3"), first=2)
    assert (answer.state, answer.position) == ("GAP", 0)
    assert desk.keyspace() == before


@pytest.mark.parametrize("epoch", [b"", b"another epoch"])
async def test_records_for_another_epoch_are_refused(desk: Desk, epoch: bytes) -> None:
    before = desk.keyspace()
    desk.bucket.epoch = epoch
    answer = await desk.apply(A, desk.push_record())
    assert (answer.state, answer.epoch) == ("EPOCH", b"epoch-1")
    assert desk.keyspace() == before


async def test_a_bucket_that_was_never_begun_has_no_epoch(desk: Desk) -> None:
    desk.client.flushall()
    answer = await desk.apply(A, desk.push_record())
    assert (answer.state, answer.epoch) == ("EPOCH", b"")
    assert desk.keyspace() == {}
    await desk.store.found(desk.bucket, b"epoch-2")


async def test_a_bucket_is_begun_once(desk: Desk) -> None:
    assert await desk.store.found(desk.bucket, b"too late", "restoring") == (b"epoch-1", "ready")
    desk.client.flushall()
    begun = await desk.store.found(desk.bucket, b"epoch-2", "restoring", 1_500, T0)
    assert begun == (b"epoch-2", "restoring")
    desk.bucket.epoch = b"epoch-2"
    assert (await desk.ask_lease()).wait_ms == 1_500


# Repeats


async def test_a_repeated_call_changes_nothing_and_answers_the_same(desk: Desk) -> None:
    held = await run(desk, "running")
    await desk.push("moved")
    wanted = [
        desk.push_record("new"),
        desk.push_record("new", 500),
        desk.push_record("new", how=KEEP),
        desk.push_record("new", how=REJECT),
        records.cancel(desk.next_stamp(), held.job),
        records.move(desk.next_stamp(), await desk.job("moved"), T0 + 77),
        records.move(desk.next_stamp(), held.job, T0),
        desk.push_record("to be cancelled"),
        NOTHING,
    ]
    codes = [Code.CREATED, Code.REPLACED, Code.KEPT, Code.REJECTED, Code.RUNNING]
    codes += [Code.MOVED, Code.BUSY, Code.CREATED, Code.SKIPPED]
    answer = await desk.apply(A, *wanted)
    assert list(answer.codes) == codes
    before = desk.keyspace()
    for flags in ("", "r", "f", "rf"):
        again = await desk.apply(A, *wanted, first=3, flags=flags)
        assert again == answer
        assert desk.keyspace() == before


async def test_a_repeat_with_more_records_behind_it_does_those_only(desk: Desk) -> None:
    one, two, three = (desk.push_record(str(n)) for n in range(3))
    await desk.apply(A, one, two)
    answer = await desk.apply(A, one, two, three, first=1)
    assert list(answer.codes) == [Code.CREATED] * 3
    assert answer.position == 3
    again = await desk.apply(A, three, first=3)
    assert list(again.codes) == [Code.CREATED]


async def test_what_is_older_than_the_last_call_is_skipped(desk: Desk) -> None:
    one, two = desk.push_record("1"), desk.push_record("2")
    await desk.apply(A, one)
    await desk.apply(A, two)
    before = desk.keyspace()
    answer = await desk.apply(A, one, two, first=1)
    assert list(answer.codes) == [Code.SKIPPED, Code.CREATED]
    assert desk.keyspace() == before


async def test_each_writer_has_a_position_of_its_own(desk: Desk) -> None:
    for n in range(3):
        await desk.push(f"a{n}", writer=A)
    await desk.push("b", writer=B)
    meta = desk.raw("meta")
    assert (meta[b"h" + A], meta[b"h" + B]) == (b"3", b"1")


# After a loss: the logs of several writers come back in any order


async def test_an_outcome_waits_for_a_push_that_is_not_there_yet(desk: Desk) -> None:
    held = await run(desk)
    done = desk.settle_record(held, Verdict.DONE)
    assert await desk.write(done, C) is Code.SETTLED
    logs = await lose_everything(desk)
    answer = await desk.apply(C, *logs[C], flags="r")
    assert (answer.state, answer.position, answer.codes) == ("WAIT", 0, b"")
    assert (await desk.apply(A, *logs[A], flags="r")).state == "OK"
    answer = await desk.apply(C, *logs[C], flags="r")
    assert (answer.state, list(answer.codes)) == ("OK", [Code.SETTLED])
    assert desk.places() == {}


@pytest.mark.parametrize("op", ["cancel", "move", "retry"])
async def test_any_change_waits_for_its_version(desk: Desk, op: str) -> None:
    held = await run(desk)
    if op == "retry":
        await desk.settle(held, Verdict.RETRY, 500)
    elif op == "move":
        await desk.give_back(held)
        await desk.move(700, writer=C)
    else:
        await desk.give_back(held)
        await desk.cancel(writer=C)
    place = desk.place()
    logs = await lose_everything(desk)
    assert (await desk.apply(C, *logs[C], flags="r")).state == "WAIT"
    desk.now = 0
    await desk.apply(A, *logs[A], flags="r")
    assert (await desk.apply(C, *logs[C], flags="r")).state == "OK"
    assert desk.place() == place


async def test_what_stands_before_the_one_that_waits_is_applied(desk: Desk) -> None:
    held = await run(desk)
    await desk.push("own", writer=C)
    await desk.settle(held)
    await desk.push("own too", writer=C)
    logs = await lose_everything(desk)
    answer = await desk.apply(C, *logs[C], flags="r")
    assert (answer.state, answer.position, list(answer.codes)) == ("WAIT", 1, [Code.CREATED])
    await desk.apply(A, *logs[A], flags="r")
    answer = await desk.apply(C, *logs[C][1:], flags="r")
    assert (answer.state, answer.position) == ("OK", 3)
    assert set(desk.places()) == {"t/own", "t/own too"}


async def test_a_fresh_record_waits_too_while_others_are_being_sent_again(desk: Desk) -> None:
    held = await run(desk)
    await desk.push("other", writer=B)
    logs = await lose_everything(desk)
    await desk.apply(B, *logs[B], flags="r")
    assert (await desk.apply(C, desk.settle_record(held, Verdict.DONE))).state == "WAIT"
    await desk.apply(A, *logs[A], flags="r")
    assert await desk.settle(held) is Code.SETTLED
    desk.now += 120_000
    stranger = Held(C, held.token, held.job)
    assert await desk.settle(stranger) is Code.ABSENT, "long after, nothing is waited for"


async def test_who_waited_long_enough_goes_on_and_the_late_push_is_swallowed(desk: Desk) -> None:
    held = await run(desk)
    await desk.settle(held)
    await desk.push("next", writer=C)
    logs = await lose_everything(desk)
    answer = await desk.apply(C, *logs[C], flags="rf")
    assert (answer.state, list(answer.codes)) == ("OK", [Code.SETTLED, Code.CREATED])
    answer = await desk.apply(A, *logs[A], flags="r")
    assert list(answer.codes) == [Code.SWALLOWED]
    assert set(desk.places()) == {"t/next"}


async def test_a_version_that_was_replaced_does_not_come_back_after_the_newer_one(
    desk: Desk,
) -> None:
    await desk.push(due=5_000, body=b"old", writer=A)
    await desk.push(due=6_000, body=b"new", writer=B)
    logs = await lose_everything(desk)
    await desk.apply(B, *logs[B], flags="r")
    answer = await desk.apply(A, *logs[A], flags="r")
    assert list(answer.codes) == [Code.SWALLOWED]
    assert (await desk.job()).body == b"new"


async def test_a_replaced_version_stays_away_when_the_newer_one_is_finished(desk: Desk) -> None:
    await desk.push(due=5_000, body=b"old", writer=A)
    await desk.push(due=0, body=b"new", writer=B)
    (held,) = await desk.lease()
    await desk.settle(held)
    logs = await lose_everything(desk)
    await desk.apply(B, *logs[B], flags="r")
    await desk.apply(C, *logs[C], flags="r")
    assert list((await desk.apply(A, *logs[A], flags="r")).codes) == [Code.SWALLOWED]
    assert desk.places() == {}


async def test_an_older_version_that_came_first_goes_with_the_finished_one(desk: Desk) -> None:
    await desk.push(due=500_000, body=b"old", writer=A)
    await desk.push(due=0, body=b"new", writer=B)
    (held,) = await desk.lease()
    await desk.settle(held)
    logs = await lose_everything(desk)
    await desk.apply(A, *logs[A], flags="r")
    assert desk.place() == "delayed +500000"
    await desk.apply(C, *logs[C], flags="rf")
    assert list((await desk.apply(B, *logs[B], flags="r")).codes) == [Code.SWALLOWED]
    assert desk.places() == {}


@pytest.mark.parametrize("how", [KEEP, REJECT])
async def test_a_replay_does_not_decide_again(desk: Desk, how: int) -> None:
    """The first version had finished when this push was accepted; in the replay it has not yet."""
    held = await run(desk)
    await desk.settle(held)
    assert await desk.push(due=9_000_000, how=how, writer=B, body=b"2nd") is Code.CREATED
    logs = await lose_everything(desk)
    await desk.apply(A, *logs[A], flags="r")
    assert list((await desk.apply(B, *logs[B], flags="r")).codes) == [Code.REPLACED]
    await desk.apply(C, *logs[C], flags="r")
    assert (await desk.job()).body == b"2nd"


@pytest.mark.parametrize("order", [(A, B), (B, A)])
async def test_ties_of_stamps_are_decided_by_the_writers_name(
    desk: Desk, order: tuple[bytes, bytes]
) -> None:
    stamp = desk.next_stamp()
    for writer in order:
        record = desk.push_record(stamp=stamp, body=writer, due=9_000_000)
        await desk.apply(writer, record, flags="r")
    assert (await desk.job()).body == max(A, B)


async def test_floors_age_away_and_there_are_none_without_a_loss(desk: Desk) -> None:
    held = await run(desk)
    await desk.settle(held)
    assert not desk.raw("floors")
    logs = await lose_everything(desk)
    await desk.apply(C, *logs[C], flags="rf")
    assert list(desk.raw("floors")) == [digest_of("t", "1")]
    desk.now += 599_000
    await desk.forward()
    assert desk.raw("floors")
    desk.now += 2_000
    await desk.forward()
    assert not desk.raw("floors")
    assert not desk.raw("floored")


async def test_a_job_that_came_back_twice_is_the_same_job(desk: Desk) -> None:
    """Restored from elsewhere before its record is sent again."""
    await desk.push(due=9_000_000)
    before = desk.standing()
    desk.client.hdel(desk.bucket.keys[0], b"h" + A)
    answer = await desk.apply(A, *desk.sent[A], first=1, flags="r")
    assert list(answer.codes) == [Code.CREATED]
    assert desk.standing() == before
