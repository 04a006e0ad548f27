"""What a dead writer leaves behind is taken over, once; a living one's is left alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dq.journal.heir import Heir
from dq.log.frames import encode_frame
from dq.log.log import read_frames, segments
from dq.queue import records
from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import Code, Verdict
from dq.queue.store import Store
from dq.queue.writer import Writer
from tests.redis.dying import FAR_MS, Process, lease, push_due, settle_record, state_of
from tests.redis.writing import (
    REJECT,
    a_push,
    applied,
    check_as_logged,
    stored,
    submit_all,
    writing,
)
from tests.valkey import Valkey

CRASHES = BUCKET_KEYS.index("crashes")


# The log


async def test_what_the_dead_had_logged_is_applied(
    heir: Heir, nodes: Nodes, fork: Callable[..., Process], valkey: Valkey
) -> None:
    """More than one call can carry, in every bucket, in its own name."""
    dead = fork()
    for number in range(450):
        for bucket in nodes.buckets:
            dead.append(bucket, a_push(dead, f"{bucket.number}/{number}", REJECT))
    dead.kill()
    await heir.tick()
    client = valkey.client()
    for bucket in nodes.buckets:
        jobs = stored(client, bucket).values()
        assert sorted(job.version.seq for job in jobs) == list(range(1, 451))
        assert {job.version.writer for job in jobs} == {dead.writer}
        assert applied(client, bucket, dead.writer) == 450
    assert dead.is_buried


async def test_a_torn_end_is_cut_off_and_the_rest_is_applied(
    heir: Heir, bucket: Bucket, fork: Callable[..., Process], valkey: Valkey
) -> None:
    dead = fork()
    dead.append(bucket, a_push(dead, "1"))
    ((_, path),) = segments(dead.folder)
    whole = path.stat().st_size
    dead.append_bytes(encode_frame(bucket.index, 2, bytes(500))[:100])
    dead.kill()
    await heir.tick()
    assert set(stored(valkey.client(), bucket)) == {"1"}
    assert path.stat().st_size == whole


async def test_only_what_a_bucket_lacks_is_applied(
    heir: Heir, bucket: Bucket, fork: Callable[..., Process], valkey: Valkey
) -> None:
    """Some of it was applied, and has moved on since; later the node falls back behind that."""
    dead, client = fork(), valkey.client()
    pushes = [a_push(dead, number, REJECT) for number in range(10)]
    for record in pushes:
        dead.append(bucket, record)
    await Store().apply(bucket, dead.writer, 1, [records.pack(one) for one in pushes[:6]])
    cancel = records.cancel(dead.next_stamp(), stored(client, bucket)["0"])
    dead.append(bucket, cancel)
    dead.kill()
    await heir.tick()
    assert set(stored(client, bucket)) == {str(number) for number in range(1, 10)}
    for key in bucket.keys[1:]:
        client.delete(key)
    client.hset(bucket.keys[0], b"h" + dead.writer, 0)
    await heir.tick()
    assert set(stored(client, bucket)) == {str(number) for number in range(1, 10)}
    assert applied(client, bucket, dead.writer) == 11


async def test_two_heirs_apply_a_log_once(
    nodes: Nodes, root: Path, fork: Callable[..., Process], valkey: Valkey
) -> None:
    """A second dq-journal while the first one has not noticed yet; the dead had jobs in hand."""
    bucket, client = nodes.buckets[0], valkey.client()
    dead = fork()
    async with writing(nodes, root) as one, writing(nodes, root) as other:
        await push_due(one, bucket, "1", "2", "3")
        held = await lease(bucket, dead)
        for number in range(600):
            dead.append(bucket, a_push(dead, f"n{number}", REJECT))
        dead.append(bucket, settle_record(dead, held["1"], Verdict.DONE))
        dead.kill()
        heirs = [Heir(nodes, Store(), writer, root) for writer in (one, other)]
        for _ in range(2):
            await asyncio.gather(*(heir.tick() for heir in heirs))
    there = stored(client, bucket)
    assert set(there) == {"2", "3", *(f"n{number}" for number in range(600))}
    assert applied(client, bucket, dead.writer) == 601
    assert set(client.hgetall(bucket.keys[CRASHES]).values()) == {b"1"}
    assert {await state_of(bucket, id_) for id_ in ("2", "3")} == {"ready"}


async def test_a_living_writer_is_left_alone(
    heir: Heir, writer: Writer, bucket: Bucket, fork: Callable[..., Process], valkey: Valkey
) -> None:
    """Stopped is not dead: it may go on any moment."""
    alive, client = fork(), valkey.client()
    await push_due(writer, bucket, "in hand")
    await lease(bucket, alive)
    alive.append(bucket, a_push(alive, "not applied"))
    os.kill(alive._child._pid, signal.SIGSTOP)
    before = client.hgetall(bucket.keys[0])
    for _ in range(2):
        await heir.tick()
    assert client.hgetall(bucket.keys[0]) == before
    assert set(stored(client, bucket)) == {"in hand"}
    assert await state_of(bucket, "in hand") == "running"
    assert not alive.is_buried
    alive.kill()
    await heir.tick()
    assert set(stored(client, bucket)) == {"in hand", "not applied"}
    assert await state_of(bucket, "in hand") == "ready"


async def test_what_a_writer_could_not_apply_before_it_stopped_is_applied(
    heir: Heir, nodes: Nodes, root: Path, valkey: Valkey
) -> None:
    bucket, client = nodes.buckets[0], valkey.client()
    client.delete(bucket.keys[0])
    async with writing(nodes, root) as stopping:
        tasks = [asyncio.create_task(submit_all(stopping, bucket, [n])) for n in range(5)]
        while stopping.last_seq(bucket) < 5:
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await Store().found(bucket, b"epoch-2")
    await heir.tick()
    check_as_logged(client, stopping, [bucket])
    assert len(stored(client, bucket)) == 5


# Its leases


async def test_the_jobs_in_a_dead_hand_are_ready_at_once_and_nobody_elses(
    heir: Heir, writer: Writer, bucket: Bucket, fork: Callable[..., Process]
) -> None:
    dead, alive = fork("dq-consumer-0"), fork("dq-consumer-1")
    await push_due(writer, bucket, "1", "2")
    await lease(bucket, dead)
    await push_due(writer, bucket, "3")
    await lease(bucket, alive)
    dead.kill()
    await heir.tick()
    assert [await state_of(bucket, id_) for id_ in "123"] == ["ready", "ready", "running"]


async def test_an_outcome_in_the_log_comes_before_the_lease(
    heir: Heir, writer: Writer, bucket: Bucket, fork: Callable[..., Process]
) -> None:
    """What was called back is not called again because its consumer died."""
    dead = fork("dq-consumer-0")
    await push_due(writer, bucket, "done", "retried", "dead", "called")
    held = await lease(bucket, dead)
    dead.append(bucket, settle_record(dead, held["done"], Verdict.DONE))
    dead.append(bucket, settle_record(dead, held["retried"], Verdict.RETRY, FAR_MS))
    dead.append(bucket, settle_record(dead, held["dead"], Verdict.DEAD))
    dead.kill()
    await heir.tick()
    states = {id_: await state_of(bucket, id_) for id_ in held}
    assert states == {"done": "gone", "retried": "delayed", "dead": "gone", "called": "ready"}
    found = await Store().find(bucket, "t", "retried")
    assert found is not None and (found[0].retries, found[0].due_ms) == (1, FAR_MS)


async def test_leases_that_ran_out_come_back_though_nobody_is_known_to_be_dead(
    heir: Heir, writer: Writer, bucket: Bucket
) -> None:
    """Another host's consumer."""
    await push_due(writer, bucket, "1")
    await Store().lease(bucket, b"elsewher", 1, 1, lease_ms=0)
    await heir.tick()
    assert await state_of(bucket, "1") == "ready"


@pytest.mark.parametrize("was_cancelled", [False, True])
async def test_a_job_that_was_in_hand_at_three_deaths_is_settled(
    heir: Heir,
    writer: Writer,
    bucket: Bucket,
    fork: Callable[..., Process],
    valkey: Valkey,
    was_cancelled: bool,
) -> None:
    """As dead; one that was cancelled while it ran ends at the first death."""
    await push_due(writer, bucket, "1")
    for number in range(1 if was_cancelled else 3):
        assert await state_of(bucket, "1") == "ready"
        consumer = fork(f"dq-consumer-{number}")
        _, job = (await lease(bucket, consumer))["1"]
        if was_cancelled:
            record = records.cancel(writer.next_stamp(), job)
            assert await writer.submit(bucket, record) is Code.RUNNING
        consumer.kill()
        await heir.tick()
    assert stored(valkey.client(), bucket) == {}
    settled = [records.unpack(frame.payload) for frame in read_frames(writer.log.folder)][-1]
    assert settled[:1] == [records.Op.SETTLE]
    detail = b"cancelled" if was_cancelled else b"poison"
    verdict = Verdict.RETRY if was_cancelled else Verdict.DEAD
    assert (settled[9], settled[16].split()[0].strip(b":,")) == (verdict, detail)
