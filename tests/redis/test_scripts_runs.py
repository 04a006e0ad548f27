"""Plain records that follow each other are done together: it must come to the same as one by one.

Of two buckets one is served by a script that does nothing together. The same with buckets that were
replayed just now: there more is written down (floors).
"""

from __future__ import annotations

from hashlib import sha1
from random import Random
from typing import Any

import pytest
import redis

from dq.queue import records
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import Code, Verdict
from tests.redis.desk import T0, A, Desk, Held
from tests.valkey import Valkey

IDS = [str(number) for number in range(16)]
WITHOUT = ("meta", "work")


@pytest.fixture
def client(valkey: Valkey) -> redis.Redis:
    return valkey.client()


def slow(bucket: Bucket, client: redis.Redis) -> Desk:
    """A desk whose records are done one by one."""
    desk = Desk(bucket, client)
    script = desk.store._apply
    begin = b"local function apply_run(records, from, seq)\n"
    assert begin in script.source
    script.source = script.source.replace(begin, begin + b"  do return 0 end\n")
    script.sha = sha1(script.source).hexdigest().encode()
    return desk


def standing(desk: Desk) -> dict[str, Any]:
    keys = [key.partition(":")[2] for key in desk.bucket.keys]
    return {key: desk.raw(key) for key in keys if key not in WITHOUT}


def a_record(desk: Desk, held: list[Held], random: Random) -> list[Any] | bytes:
    kind = random.randrange(10)
    if kind < 4 or not held:
        topic, due = random.choice(["t", "u"]), random.choice([-5, 700])
        how = random.choice([0, 0, 0, 1, 2])
        return desk.push_record(random.choice(IDS), due, topic=topic, how=how)
    one = random.choice(held)
    if kind < 8:
        verdict = random.choice([Verdict.DONE] * 6 + [Verdict.RETRY, Verdict.DEAD])
        return desk.settle_record(one, verdict, 500)
    if kind == 8:
        return records.cancel(desk.next_stamp(), one.job)
    return records.NOTHING


@pytest.mark.parametrize("is_recovering", [False, True])
@pytest.mark.parametrize("seed", range(15))
async def test_a_batch_comes_to_the_same_however_it_is_cut(
    nodes: Nodes, client: redis.Redis, seed: int, is_recovering: bool
) -> None:
    random = Random(seed)
    desk, other = Desk(nodes.buckets[0], client), slow(nodes.buckets[1], client)
    desks = (desk, other)
    for one in desks:
        await one.limit(1, u=(0, 4, 0.0))
        if is_recovering:
            client.hset(one.bucket.keys[0], "replayed", T0 + 1_000_000)
    held: list[Held] = []
    for _ in range(6):
        batch = [a_record(desk, held, random) for _ in range(random.randrange(1, 40))]
        told = [await one.apply(A, *batch) for one in desks]
        assert told[0] == told[1]
        assert (await desk.forward()) == (await other.forward())
        leased = [await one.lease(9) for one in desks]
        assert leased[0] == leased[1]
        held += leased[0]
        assert standing(desk) == standing(other)
        for one in desks:
            one.check()
            one.now += 400


async def test_many_new_jobs_and_many_ends_take_few_calls(desk: Desk, client: redis.Redis) -> None:
    ids = [str(number) for number in range(100)]
    pushes = [desk.push_record(id_, number % 2) for number, id_ in enumerate(ids)]
    before = calls(client)
    assert set((await desk.apply(A, *pushes)).codes) == {Code.CREATED}
    desk.now = 1
    assert await desk.forward() == (50, -1)
    held = await desk.lease(100)
    longer = [(*one.lease, T0 + 90_000) for one in held]
    assert await desk.store.extend(desk.bucket, longer) == 100
    ends = [desk.settle_record(one, Verdict.DONE) for one in held]
    assert set((await desk.apply(A, *ends)).codes) == {Code.SETTLED}
    assert calls(client) - before < 100
    assert desk.places() == {}


def calls(client: redis.Redis) -> int:
    return sum(one["calls"] for one in client.info("commandstats").values())
