"""push: a new job, or a new version of one, from every state that a job can be in."""

from __future__ import annotations

import pytest

from dq.queue import records
from dq.queue.records import Code, StoredJob, Verdict, Version, digest_of
from tests.redis.desk import KEEP, REJECT, REPLACE, T0, A, B, Desk

CASES = [
    # before     on duplicate  due     outcome         where it stands then
    ("absent", REPLACE, 1_000, Code.CREATED, "delayed +1000"),
    ("absent", REPLACE, 1, Code.CREATED, "delayed +1"),
    ("absent", REPLACE, 0, Code.CREATED, "ready"),
    ("absent", REPLACE, -90_000, Code.CREATED, "ready"),
    ("absent", KEEP, 1_000, Code.CREATED, "delayed +1000"),
    ("absent", REJECT, 1_000, Code.CREATED, "delayed +1000"),
    ("delayed", REPLACE, 2_000, Code.REPLACED, "delayed +2000"),
    ("delayed", REPLACE, 500, Code.REPLACED, "delayed +500"),
    ("delayed", REPLACE, 0, Code.REPLACED, "ready"),
    ("delayed", KEEP, 2_000, Code.KEPT, "delayed +1000"),
    ("delayed", REJECT, 2_000, Code.REJECTED, "delayed +1000"),
    ("ready", REPLACE, 2_000, Code.REPLACED, "delayed +2000"),
    ("ready", REPLACE, -1, Code.REPLACED, "ready"),
    ("ready", KEEP, 2_000, Code.KEPT, "ready"),
    ("ready", REJECT, 2_000, Code.REJECTED, "ready"),
    ("running", REPLACE, 2_000, Code.REPLACED, "delayed +2000 & older runs"),
    ("running", REPLACE, 0, Code.REPLACED, "older runs"),
    ("running", KEEP, 2_000, Code.KEPT, "running"),
    ("running", REJECT, 2_000, Code.REJECTED, "running"),
    ("closed", REPLACE, 2_000, Code.REPLACED, "delayed +2000 & older runs"),
    ("closed", REPLACE, 0, Code.REPLACED, "older runs"),
    ("closed", KEEP, 0, Code.REPLACED, "older runs"),
    ("closed", REJECT, 0, Code.REPLACED, "older runs"),
    ("waiting", REPLACE, 2_000, Code.REPLACED, "delayed +2000 & older runs"),
    ("waiting", REPLACE, 0, Code.REPLACED, "older runs"),
    ("waiting", KEEP, 0, Code.KEPT, "older runs"),
    ("retrying", REPLACE, 2_000, Code.REPLACED, "delayed +2000"),
    ("retrying", REPLACE, 0, Code.REPLACED, "ready"),
    ("retrying", KEEP, 0, Code.KEPT, "delayed +1000"),
    ("finished", REPLACE, 2_000, Code.CREATED, "delayed +2000"),
    ("finished", KEEP, 2_000, Code.CREATED, "delayed +2000"),
    ("finished", REJECT, 2_000, Code.CREATED, "delayed +2000"),
]


@pytest.mark.parametrize(("before", "how", "due", "outcome", "place"), CASES)
async def test_push(desk: Desk, before: str, how: int, due: int, outcome: Code, place: str) -> None:
    await desk.bring(before)
    keyspace = desk.standing()
    assert await desk.push(due=due, body=b"new", how=how, writer=B) is outcome
    assert desk.places() == {"t/1": place}
    if outcome >= Code.REFUSED:
        assert desk.standing() == keyspace
        return
    job = await desk.job()
    assert (job.body, job.due_ms, job.retries) == (b"new", T0 + due, 0)
    assert (job.version.writer, job.version.seq, job.version.stamp) == (B, 1, desk.stamp)


async def test_a_push_is_stored_as_it_was_given(desk: Desk) -> None:
    stamp = desk.next_stamp()
    body = bytes(range(256)) * 4
    record = records.push(
        stamp,
        topic="order_close",
        id_="id/with:many*signs\u00fc",
        body=body,
        due_ms=T0 + 5,
        absolute=True,
        priority=2,
        timeout_ms=600_000,
        key="shop 7",
        on_duplicate=REJECT,
    )
    assert await desk.write(record, B) is Code.CREATED
    job = await desk.job("id/with:many*signs\u00fc", "order_close")
    assert job == StoredJob(
        Version(stamp, B, 1), T0 + 5, 0, 2, 600_000, "order_close", job.id, "shop 7", body
    )


@pytest.mark.parametrize(
    ("body", "due", "absolute", "outcome"),
    [
        (b"old", 1_000, True, Code.KEPT),
        (b"old", 1_001, True, Code.REPLACED),
        (b"other", 1_000, True, Code.REPLACED),
        (b"old", 1_000, False, Code.REPLACED),
    ],
)
async def test_the_same_body_and_instant_again_is_kept(
    desk: Desk, body: bytes, due: int, absolute: bool, outcome: Code
) -> None:
    await desk.bring("delayed")
    version = (await desk.job()).version
    assert await desk.push(due=due, body=body, absolute=absolute, writer=B) is outcome
    assert ((await desk.job()).version == version) == (outcome is Code.KEPT)


@pytest.mark.parametrize("behind_by", [0, 1, 10_000_000])
async def test_a_writer_whose_clock_is_behind_is_told(desk: Desk, behind_by: int) -> None:
    await desk.bring("delayed")
    before = desk.standing()
    stamp = desk.stamp - behind_by
    assert await desk.push(stamp=stamp, body=b"new", writer=B) is Code.BEHIND
    assert desk.standing() == before


async def test_another_job_with_the_same_digest_is_never_touched(desk: Desk) -> None:
    digest = digest_of("t", "1")
    for other in (("t", "2"), ("u", "1")):
        job = StoredJob(Version(1, A, 1), T0 + 1_000, 0, 1, 0, *other, "", b"its own")
        desk.client.hset(desk.bucket.keys[1], digest, records.pack_job(job))
        desk.client.zadd(desk.bucket.keys[2], {digest: T0 + 1_000})
        before = desk.standing()
        for how in (REPLACE, KEEP, REJECT):
            assert await desk.push(how=how) is Code.COLLIDED
        assert desk.standing() == before
        assert await desk.store.find(desk.bucket, "t", "1") is None
    desk.client.delete(*desk.bucket.keys[1:3])


@pytest.mark.parametrize(
    ("dues", "rings"),
    [([1_000], 1), ([1_000, 2_000], 0), ([2_000, 1_000], 1), ([1_000, 1_000], 0), ([0], 0)],
)
async def test_the_timer_is_woken_by_what_is_due_before_all_others(
    desk: Desk, dues: list[int], rings: int
) -> None:
    wake = desk.bucket.keys[14]
    for number, due in enumerate(dues):
        desk.client.delete(wake)
        await desk.push(str(number), due)
    assert desk.client.llen(wake) == rings


async def test_consumers_are_woken_by_one_token_when_something_is_ready(desk: Desk) -> None:
    work = desk.bucket.keys[15]
    await desk.push("1", 1_000)
    assert desk.client.llen(work) == 0
    for number in range(5):
        await desk.push(f"due {number}", 0)
    assert desk.client.llen(work) == 1


@pytest.mark.parametrize("how", [0, 1, 2])
async def test_a_job_that_was_cancelled_while_it_runs_stands_in_no_ones_way(
    desk: Desk, how: int
) -> None:
    await desk.push("1", 0, absolute=True)
    (held,) = await desk.lease()
    assert await desk.cancel("1") is Code.RUNNING
    assert await desk.push("1", 0, how=how, absolute=True) is Code.REPLACED
    await desk.settle(held, Verdict.RETRY, 100)
    (again,) = await desk.lease()
    assert again.job.version != held.job.version
    await desk.settle(again)
