"""What the heir can't take over now, or never, holds up nobody else."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dq.core import clock
from dq.journal.heir import Heir
from dq.log.frames import encode_mark
from dq.log.log import segments
from dq.queue import records
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import StoredJob, Verdict
from dq.queue.store import Store
from dq.queue.writer import Writer
from tests.redis.dying import FAR_MS, Process, lease, push_due, settle_record, state_of
from tests.redis.writing import a_push, nodes_of, stored, writing
from tests.valkey import Valkey


async def test_a_log_that_is_damaged_is_told_once_and_holds_up_nobody(
    heir: Heir,
    writer: Writer,
    bucket: Bucket,
    fork: Callable[..., Process],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged, dead = fork("dq-consumer-0"), fork("dq-consumer-1")
    await push_due(writer, bucket, "1", "2")
    await Store().lease(bucket, damaged.writer, 1, 1, lease_ms=0)
    await lease(bucket, dead)
    for record in (a_push(damaged, "3"), a_push(damaged, "4")):
        damaged.append(bucket, record)
    ((_, path),) = segments(damaged.folder)
    data = bytearray(path.read_bytes())
    data[data.index(b"\xd9\x51") + 30] ^= 0xFF
    data += encode_mark(len(data))
    path.write_bytes(data)
    dead.append(bucket, a_push(dead, "5"))
    for process in (damaged, dead):
        process.kill()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await heir.tick()
    assert [record for record in caplog.records if "can't be applied" in record.message]
    assert len(caplog.records) == 1
    states = [await state_of(bucket, id_) for id_ in "12345"]
    assert states == ["ready", "ready", "gone", "gone", "delayed"]
    assert (dead.is_buried, damaged.is_buried) == (True, False)


async def test_two_dead_whose_records_need_each_other_are_both_applied(
    heir: Heir, bucket: Bucket, fork: Callable[..., Process], valkey: Valkey
) -> None:
    """The machine had a power cut: Redis lost the push and the retry of a job, both logs have
    them; the order in which the logs are found is no order of events."""
    one, other = fork("dq-server-0"), fork("dq-consumer-0")
    consumer, server = sorted((one, other), key=lambda process: process.folder.name)
    push = a_push(server, "1", due_ms=clock.now_ms() - 1_000)
    version = records.Version(push[1], server.writer, server.append(bucket, push))
    job = StoredJob(version, push[3], 0, 1, 0, "t", "1", "", b"1")
    held = (consumer.writer + (1).to_bytes(8, "big"), job)
    consumer.append(bucket, settle_record(consumer, held, Verdict.RETRY, FAR_MS))
    for process in (consumer, server):
        process.kill()
    began_ms = clock.mono_ms()
    while not (consumer.is_buried and server.is_buried):
        await heir.tick()
    assert clock.mono_ms() - began_ms < 4_000, "it waits for one only that it can't apply itself"
    back = stored(valkey.client(), bucket)["1"]
    assert (back.retries, back.due_ms) == (1, FAR_MS)


@pytest.fixture
async def two_nodes(valkey: Valkey, tmp_path: Path) -> AsyncIterator[tuple[Nodes, Valkey]]:
    """The first of them can be killed."""
    valkey.client().flushall()
    own = Valkey().start()
    async with nodes_of(tmp_path, own.url, valkey.url, buckets=1) as nodes:
        yield nodes, own
    own.stop()
    shutil.rmtree(own.folder)


async def test_a_node_that_is_away_holds_up_its_own_jobs_only(
    two_nodes: tuple[Nodes, Valkey], root: Path
) -> None:
    nodes, own = two_nodes
    away, here = nodes.buckets
    dead = Process(root, nodes, "dq-consumer-0")
    async with writing(nodes, root) as writer:
        heir = Heir(nodes, Store(), writer, root)
        held = {}
        for bucket in nodes.buckets:
            await push_due(writer, bucket, "1", "2")
            held[bucket] = await lease(bucket, dead)
            await push_due(writer, bucket, "3")
            await Store().lease(bucket, b"elsewher", 1, 1, lease_ms=0)
        for bucket in nodes.buckets:
            dead.append(bucket, settle_record(dead, held[bucket]["1"], Verdict.DONE))
        own.kill()
        dead.kill()
        await heir.tick()
        assert [await state_of(here, id_) for id_ in "123"] == ["gone", "ready", "ready"]
        assert not dead.is_buried
        own.start()
        await heir.tick()
        assert [await state_of(away, id_) for id_ in "123"] == ["gone", "ready", "ready"]
        assert dead.is_buried
