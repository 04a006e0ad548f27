"""A job is packed by the scripts and by Python: both must write and read the same bytes."""

from __future__ import annotations

from random import Random

import msgpack
import pytest

from dq.queue.nodes import NodeRefused
from dq.queue.records import StoredJob, Version, digest_of, pack_job, unpack_job
from dq.queue.store import _Script
from tests.redis.desk import T0, Desk

EDGES = (0, 1, 2**15 - 1, 2**15, 2**23 - 1, 2**23, 2**31 - 1, 2**31, 2**44)
PLAIN = StoredJob(Version(T0 * 1000, b"writer-A", 1), T0, 0, 1, 0, "t", "1", "", b"1")


def a_job(chance: Random) -> StoredJob:
    stamp = (T0 + chance.randrange(10**9)) * 1000 + chance.randrange(1000)
    ahead_ms = chance.choice(EDGES) * chance.choice((1, -1)) - chance.randrange(2)
    return StoredJob(
        version=Version(stamp, chance.randbytes(8), chance.choice(EDGES)),
        due_ms=stamp // 1000 + ahead_ms,
        retries=chance.choice((0, 0, 1, 65_535)),
        priority=chance.choice((0, 1, 1, 2)),
        timeout_ms=chance.choice((0, 0, 100, 600_000)),
        topic="t" * chance.choice((1, 5, 128)),
        id=chance.choice(("1", "é" * 256, "order:42")),
        key=chance.choice(("", "", "ключ")),
        body=chance.randbytes(chance.choice((0, 1, 64, 70_000))),
        changed=chance.choice((0, 0, stamp + 1)),
        is_closed=chance.choice((False, False, True)),
    )


@pytest.mark.parametrize("seed", range(5))
async def test_scripts_and_python_pack_alike(desk: Desk, seed: int) -> None:
    again = _Script()
    again.source += b"return pack_job(unpack(unpack_job(ARGV[1])))"
    place = _Script()
    place.source += b"""
        local priority, topic, due = place_of(ARGV[1])
        return {priority, topic, string.format('%.0f', due), version_in(ARGV[1])}"""
    for script in (again, place):
        script.sha = b"0" * 40  # never loaded: it goes along in full
    chance = Random(seed)
    for _ in range(100):
        job = a_job(chance)
        raw = pack_job(job)
        assert unpack_job(raw) == job
        assert await again(desk.bucket, raw) == raw
        assert await place(desk.bucket, raw) == [
            job.priority,
            job.topic.encode(),
            b"%d" % job.due_ms,
            job.version.key[1:],
        ]


def test_a_plain_job_takes_few_bytes_beside_its_body() -> None:
    day = PLAIN.due_ms + 86_400_000
    job = StoredJob(PLAIN.version, day, 0, 1, 0, "bench", "m-0-123456", "", b"x" * 64)
    assert len(pack_job(job)) == 64 + len("bench" + "m-0-123456") + 24


async def test_another_layout_is_refused_not_misread(desk: Desk) -> None:
    """As dq packed jobs before: an array."""
    older = msgpack.packb([T0 * 1000, b"writer-A", 1, T0, 0, 1, 0, "t", "1", "", b"1", 0, 0])
    with pytest.raises(ValueError, match="another version"):
        unpack_job(older)
    bucket, digest = desk.bucket, digest_of("t", "1")
    desk.client.hset(bucket.keys[1], digest, older)
    desk.client.zadd(bucket.keys[2], {digest: T0})
    before = desk.keyspace()
    for asked in (desk.forward(), desk.push(), desk.store.find(bucket, "t", "1")):
        with pytest.raises(NodeRefused, match="another version"):
            await asked
    assert desk.keyspace() == before
    desk.client.delete(*bucket.keys[1:3])
