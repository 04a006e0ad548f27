"""A node that is a real Redis Cluster: each bucket lives in one slot, and all that can be done with
a bucket can be done there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dq.core import clock
from dq.core.errors import NodeAway
from dq.log.frames import NOTE
from dq.log.log import read_frames
from dq.queue import records
from dq.queue.bell import WORK, Bell
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import Code, StoredJob, Verdict, digest_of
from dq.queue.schedule import NewJob, Schedule
from dq.queue.store import Store, read_position
from dq.queue.writer import Writer
from tests.redis.cluster import Cluster
from tests.redis.writing import DUE_MS, REJECT, a_push, hasty, nodes_of, submit_all, writing

BUCKETS = 6
CONSUMER = b"consumer"
BOUND_S = 20.0


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    started.clear()
    return started


@pytest.fixture
async def nodes(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Nodes]:
    async with nodes_of(tmp_path, cluster.url, buckets=BUCKETS) as nodes:
        yield nodes


@pytest.fixture
async def writer(nodes: Nodes, tmp_path: Path) -> AsyncIterator[Writer]:
    async with writing(nodes, tmp_path / "log") as writer:
        yield writer


async def test_the_keys_of_a_bucket_are_in_one_slot_and_the_buckets_on_all_masters(
    cluster: Cluster, nodes: Nodes
) -> None:
    slots = []
    with cluster.masters[0].client() as client:
        for bucket in nodes.buckets:
            found = {client.execute_command("CLUSTER KEYSLOT", key) for key in bucket.keys}
            assert len(found) == 1
            slots += found
    assert len({slot * 3 // 16_384 for slot in slots}) == 3


@pytest.mark.parametrize("number", range(BUCKETS))
async def test_a_jobs_whole_life_runs_on_every_bucket(
    nodes: Nodes, writer: Writer, number: int
) -> None:
    bucket, store = nodes.buckets[number], Store()
    now_ms = clock.now_ms()
    await submit_all(writer, bucket, ["delayed", "cancelled", "moved"])
    await submit_all(writer, bucket, ["soon"], due_ms=now_ms + 60_000)
    later_ms = now_ms + 61_000
    assert await store.forward(bucket, later_ms) == (1, DUE_MS - later_ms)
    token, job = (await lease(store, bucket, 1))["soon"]
    assert await store.extend(bucket, [(digest_of("t", "soon"), token, later_ms)]) == 1
    assert await store.give_back(bucket, [(digest_of("t", "soon"), token)], later_ms) == 1
    token, job = (await lease(store, bucket, 2))["soon"]
    assert (await store.find(bucket, "t", "soon")) == (job, "running")
    settled = records.settle(writer.next_stamp(), job, token, Verdict.DONE, 0, [])
    assert await writer.submit(bucket, settled) is Code.SETTLED
    _, moved = await found(store, bucket, "moved")
    record = records.move(writer.next_stamp(), moved, DUE_MS + 1)
    assert await writer.submit(bucket, record) is Code.MOVED
    _, cancelled = await found(store, bucket, "cancelled")
    record = records.cancel(writer.next_stamp(), cancelled)
    assert await writer.submit(bucket, record) is Code.CANCELLED
    assert await store.is_whole(bucket)
    assert (await read_position(bucket, writer.name))[2] == 7


async def lease(store: Store, bucket: Bucket, first: int) -> dict[str, tuple[bytes, StoredJob]]:
    leased = await store.lease(bucket, CONSUMER, first, 1, last_token=first - 1)
    assert leased.state == "OK"
    return {job.id: (token, job) for token, job in leased.jobs}


async def found(store: Store, bucket: Bucket, id_: str) -> tuple[str, StoredJob]:
    answer = await store.find(bucket, "t", id_)
    assert answer is not None
    return answer[1], answer[0]


@pytest.mark.parametrize("number", range(BUCKETS))
async def test_what_mends_a_bucket_runs_on_every_bucket(
    nodes: Nodes, writer: Writer, number: int
) -> None:
    bucket, store = nodes.buckets[number], Store()
    await submit_all(writer, bucket, ["1"], due_ms=clock.now_ms() - 1)
    assert await store.limit(bucket, 1, {"t": (0, 5, 100.0)})
    token, job = (await lease(store, bucket, 1))["1"]
    assert (await store.rescue(bucket, b"the-heir", 1, consumer=CONSUMER)).count == 1
    assert await store.reassert(bucket, CONSUMER, 1, [(job, token, DUE_MS)]) == 1
    audited = await store.audit(bucket, [digest_of("t", "1"), digest_of("t", "2")])
    assert (audited.mended, audited.missing) == (0, [1])
    assert await store.restore(bucket, [job]) == 0
    assert await store.wipe(bucket)
    assert await store.found(bucket, b"epoch-2") == (b"epoch-2", "ready")
    assert await store.restore(bucket, [job]) == 1


async def test_the_door_serves_all_topics(nodes: Nodes, writer: Writer) -> None:
    schedule = Schedule(writer, nodes)
    topics = [f"{number}. topic" for number in range(40)]
    for topic in topics:
        assert (await schedule.push(NewJob(topic, "1", b"1", DUE_MS))).result == "created"
    located = [await schedule.locate(topic, "1") for topic in topics]
    assert {place[0].number for place in located if place} == set(range(BUCKETS))
    for topic in topics:
        assert await schedule.cancel(topic, "1") == "cancelled"
        assert await schedule.find(topic, "1") is None


async def test_consumers_of_every_bucket_are_woken(nodes: Nodes, writer: Writer) -> None:
    rung: set[int] = set()
    all_rung = asyncio.Event()

    def ring(bucket: Bucket | None) -> None:
        rung.update([bucket.number] if bucket else [])
        if len(rung) == BUCKETS:
            all_rung.set()

    listening = asyncio.create_task(Bell(nodes.all, WORK, ring).listen())
    for bucket in nodes.buckets:
        await submit_all(writer, bucket, ["1"], due_ms=clock.now_ms() - 1)
    async with asyncio.timeout(BOUND_S):
        await all_rung.wait()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_master_that_is_away_is_told_and_its_records_arrive_when_it_is_back(
    cluster: Cluster, nodes: Nodes, writer: Writer
) -> None:
    """It is the very one that the URL names."""
    server = cluster.masters[0]
    server.kill()
    with hasty(writer):
        told = await asyncio.gather(
            *(writer.submit(bucket, a_push(writer, "1")) for bucket in nodes.buckets),
            return_exceptions=True,
        )
    away = [one for one in told if one is not Code.CREATED]
    assert away
    assert {type(one) for one in away} == {NodeAway}
    server.start()
    cluster.wait_ready()
    for bucket in nodes.buckets:
        assert await submit_all(writer, bucket, ["after"]) == [Code.CREATED]
        assert (await read_position(bucket, writer.name))[2] == writer.last_seq(bucket) == 2


async def test_a_slot_that_moves_to_another_master_is_told_and_goes_on_there(
    cluster: Cluster, nodes: Nodes, writer: Writer
) -> None:
    """While a bucket is half here and half there nobody can change it."""
    bucket = nodes.buckets[0]
    await submit_all(writer, bucket, ["before"])
    with cluster.moving(bucket.keys[0]) as move:
        with pytest.raises(NodeAway), hasty(writer):
            await writer.submit(bucket, a_push(writer, "meanwhile", REJECT))
        with pytest.raises(NodeAway):
            await Store().lease(bucket, CONSUMER, 1, 1)
        move(bucket.keys)
    assert await submit_all(writer, bucket, ["after"]) == [Code.CREATED]
    assert (await read_position(bucket, writer.name))[2] == 3
    for id_ in ("before", "meanwhile", "after"):
        assert await Store().find(bucket, "t", id_)
    assert not [one for one in read_frames(writer.log.folder) if one.bucket == NOTE]


async def test_a_cluster_that_is_away_at_the_start_is_used_when_it_is_there(
    cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    for server in cluster.masters:
        server.kill()
    with pytest.raises(NodeAway):
        await read_position(nodes.buckets[0], b"")
    late = Nodes([cluster.url], BUCKETS)
    await late.open(tmp_path / "nodes.json")
    assert late.all[0].is_away
    for server in cluster.masters:
        server.start()
    cluster.wait_ready()
    for one in (late, nodes):
        assert (await read_position(one.buckets[0], b""))[0] == b"epoch-1"
    await late.close()
