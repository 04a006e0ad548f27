"""cancel and move: changes to a version of a job, from every state that a job can be in."""

from __future__ import annotations

import msgspec
import pytest

from dq.queue import records
from dq.queue.records import Code, StoredJob, Verdict, Version
from tests.redis.desk import T0, A, B, Desk

CANCEL = [
    ("delayed", Code.CANCELLED, "gone"),
    ("ready", Code.CANCELLED, "gone"),
    ("running", Code.RUNNING, "running"),
    ("closed", Code.RUNNING, "running"),
    ("retrying", Code.CANCELLED, "gone"),
    ("waiting", Code.CANCELLED, "gone"),
]
AFTERWARDS = [
    # verdict of the attempt that was cancelled, outcome
    (Verdict.DONE, Code.SETTLED),
    (Verdict.RETRY, Code.CANCELLED),
    (Verdict.DEAD, Code.CANCELLED),
]
MOVE = [
    # before     due     outcome      where it stands then
    ("delayed", 5_000, Code.MOVED, "delayed +5000"),
    ("delayed", 0, Code.MOVED, "ready"),
    ("delayed", -1, Code.MOVED, "ready"),
    ("ready", 5_000, Code.MOVED, "delayed +5000"),
    ("ready", -1, Code.MOVED, "ready"),
    ("retrying", 5_000, Code.MOVED, "delayed +5000"),
    ("running", 5_000, Code.BUSY, "running"),
    ("running", 0, Code.BUSY, "running"),
    ("closed", 5_000, Code.BUSY, "running"),
    ("waiting", 5_000, Code.MOVED, "delayed +5000 & older runs"),
    ("waiting", -1, Code.MOVED, "older runs"),
]


def a_stranger() -> StoredJob:
    return StoredJob(Version(T0, A, 1), T0, 0, 1, 0, "t", "1", "", b"")


@pytest.mark.parametrize(("before", "outcome", "place"), CANCEL)
async def test_cancel(desk: Desk, before: str, outcome: Code, place: str) -> None:
    await desk.bring(before)
    assert await desk.cancel(writer=B) is outcome
    assert desk.place() == place


@pytest.mark.parametrize(("verdict", "outcome"), AFTERWARDS)
async def test_a_job_cancelled_while_it_ran_ends_with_its_attempt(
    desk: Desk, verdict: Verdict, outcome: Code
) -> None:
    held = await desk.bring("closed")
    assert held
    assert await desk.settle(held, verdict, due=1_000) is outcome
    assert desk.places() == {}


async def test_a_cancel_leaves_no_trace_in_the_keyspace(desk: Desk) -> None:
    before = desk.standing()
    await desk.push("1", 1_000)
    await desk.push("2", 0)
    await desk.cancel("1")
    await desk.cancel("2")
    desk.client.delete(*desk.bucket.keys[14:16])
    assert await desk.lease(10) == []
    assert desk.standing() == before


@pytest.mark.parametrize("op", ["cancel", "move"])
@pytest.mark.parametrize("before", ["absent", "finished"])
async def test_there_is_nothing_to_change_about_what_is_not_there(
    desk: Desk, op: str, before: str
) -> None:
    await desk.bring(before)
    keyspace = desk.standing()
    assert await desk.write(change(desk, op, a_stranger()), B) is Code.ABSENT
    assert desk.standing() == keyspace


@pytest.mark.parametrize("op", ["cancel", "move"])
@pytest.mark.parametrize("before", ["delayed", "ready", "running", "retrying"])
async def test_a_change_means_one_version_and_touches_no_other(
    desk: Desk, op: str, before: str
) -> None:
    await desk.bring(before)
    keyspace = desk.standing()
    job = await desk.job()
    for version in (
        msgspec.structs.replace(job.version, stamp=job.version.stamp - 1),
        msgspec.structs.replace(job.version, writer=B),
    ):
        record = change(desk, op, msgspec.structs.replace(job, version=version))
        assert await desk.write(record, B) is Code.CHANGED
    assert desk.standing() == keyspace


def change(desk: Desk, op: str, job: StoredJob) -> list[object]:
    if op == "cancel":
        return records.cancel(desk.next_stamp(), job)
    return records.move(desk.next_stamp(), job, T0 + 7_777)


@pytest.mark.parametrize(("before", "due", "outcome", "place"), MOVE)
async def test_move(desk: Desk, before: str, due: int, outcome: Code, place: str) -> None:
    await desk.bring(before)
    keyspace, old = desk.standing(), await desk.job()
    assert await desk.move(due, writer=B) is outcome
    assert desk.place() == place
    if outcome is Code.BUSY:
        assert desk.standing() == keyspace
        return
    moved = msgspec.structs.replace(old, due_ms=T0 + due, changed=desk.stamp)
    assert await desk.job() == moved, "nothing but its due time and the stamp of the change"


async def test_an_older_move_does_not_undo_a_newer_one(desk: Desk) -> None:
    """Two hosts' clocks differ: the stamp decides, not the order of arrival."""
    await desk.bring("delayed")
    job = await desk.job()
    older, newer = desk.next_stamp(), desk.next_stamp()
    assert await desk.write(records.move(newer, job, T0 + 9_000), A) is Code.MOVED
    assert await desk.write(records.move(older, job, T0 + 100), B) is Code.CHANGED
    assert await desk.write(records.move(newer, job, T0 + 100), B) is Code.CHANGED
    assert desk.place() == "delayed +9000"


async def test_an_earlier_due_time_wakes_the_timer(desk: Desk) -> None:
    await desk.push("1", 1_000)
    await desk.push("2", 5_000)
    wake = desk.bucket.keys[14]
    desk.client.delete(wake)
    await desk.move(2_000, "2")
    assert desk.client.llen(wake) == 0
    await desk.move(900, "2")
    assert desk.client.llen(wake) == 1
