"""The scripts on a node in trouble: memory full, foreign keys in the way; and what they leave."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dq.core.errors import NodeFull
from dq.queue import records
from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import NodeRefused
from dq.queue.records import Code, Verdict
from tests.redis.desk import HEIR, T0, A, C, D, Desk, Held, read_key

Call = Callable[[Desk, Held], Awaitable[object]]


@contextmanager
def full_memory(desk: Desk) -> Iterator[None]:
    desk.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        desk.client.config_set("maxmemory", 0)


async def some_jobs(desk: Desk) -> Held:
    """delayed, ready and running ones of a topic with a rate, so that every key is in use."""
    await desk.limit(1, t=(0, 50, 20.0))
    await desk.push("running", 0)
    (held,) = await desk.lease()
    await desk.push("ready", 0)
    await desk.push("delayed", 1_000)
    return held


# Memory full


async def test_a_full_node_refuses_pushes_and_nothing_has_changed(desk: Desk) -> None:
    await some_jobs(desk)
    before = desk.keyspace()
    with full_memory(desk):
        for due in (0, 5_000):
            with pytest.raises(NodeFull):
                await desk.apply(A, desk.push_record("new", due))
            with pytest.raises(NodeFull):
                await desk.apply(A, desk.push_record("new", due), desk.push_record("2nd", due))
        assert desk.keyspace() == before
    assert await desk.push("new") is Code.CREATED


WHEN_FULL: list[tuple[str, Call, object]] = [
    ("done", lambda desk, held: desk.settle(held), Code.SETTLED),
    ("dead", lambda desk, held: desk.settle(held, Verdict.DEAD), Code.SETTLED),
    ("retry", lambda desk, held: desk.settle(held, Verdict.RETRY, 5_000), Code.SETTLED),
    ("stale", lambda desk, held: desk.settle(Held(D, D * 2, held.job)), Code.STALE),
    ("cancel delayed", lambda desk, held: desk.cancel("delayed"), Code.CANCELLED),
    ("cancel ready", lambda desk, held: desk.cancel("ready"), Code.CANCELLED),
    ("cancel running", lambda desk, held: desk.cancel("running"), Code.RUNNING),
    ("move", lambda desk, held: desk.move(0, "delayed"), Code.MOVED),
    ("forward", lambda desk, held: desk.forward(), (1, -1)),
    ("extend", lambda desk, held: desk.store.extend(desk.bucket, [(*held.lease, T0)]), 1),
    ("give back", lambda desk, held: desk.give_back(held), 1),
    ("limit", lambda desk, held: desk.limit(2, t=(1, 0, 0.0)), True),
]


@pytest.mark.parametrize(("call", "answer"), [row[1:] for row in WHEN_FULL])
async def test_a_full_node_lets_go_on_what_is_there(desk: Desk, call: Call, answer: object) -> None:
    held = await some_jobs(desk)
    desk.now = 1_000
    with full_memory(desk):
        assert await call(desk, held) == answer
    desk.check()


async def test_a_full_node_hands_out_what_is_ready(desk: Desk) -> None:
    await some_jobs(desk)
    with full_memory(desk):
        leased = await desk.ask_lease(5)
        assert (leased.state, leased.jobs, leased.wait_ms) == ("OK", [], 50), "the rate's turn"
        desk.now = 50
        assert len(await desk.lease(5)) == 1
        assert (await desk.ask_lease(5, high=[(A, 99)])).state == "BEHIND"


async def test_a_full_node_takes_leases_back_and_hears_of_those_that_it_lost(desk: Desk) -> None:
    held = await some_jobs(desk)
    with full_memory(desk):
        assert (await desk.rescue(C)).count == 1
        lease = (held.job, held.token, T0 + 60_000)
        assert await desk.store.reassert(desk.bucket, C, 1, [lease]) == 1
        assert desk.place("running") == "running"


# Foreign keys


async def replace_running(desk: Desk, held: Held) -> object:
    return await desk.push("running", 500, body=b"new")


CALLS: dict[str, Call] = {
    "push delayed": lambda desk, held: desk.push("new", 7_000),
    "push ready": lambda desk, held: desk.push("new", 0),
    "replace delayed": lambda desk, held: desk.push("delayed", 0, body=b"new"),
    "replace running": replace_running,
    "cancel": lambda desk, held: desk.cancel("delayed"),
    "cancel running": lambda desk, held: desk.cancel("running"),
    "move": lambda desk, held: desk.move(0, "delayed"),
    "done": lambda desk, held: desk.settle(held),
    "retry": lambda desk, held: desk.settle(held, Verdict.RETRY, 500),
    "replayed": lambda desk, held: desk.settle(held, flags="r"),
    "forward": lambda desk, held: desk.forward(),
    "lease": lambda desk, held: desk.lease(5),
    "give back": lambda desk, held: desk.give_back(held),
    "extend": lambda desk, held: desk.store.extend(desk.bucket, [(*held.lease, T0 + 99)]),
    "rescue": lambda desk, held: desk.rescue(C),
    "limit": lambda desk, held: desk.limit(2),
}


@pytest.mark.parametrize("name", BUCKET_KEYS)
@pytest.mark.parametrize("call", CALLS)
async def test_a_key_of_another_kind_is_told_about_and_never_taken_for_ours(
    desk: Desk, name: str, call: str
) -> None:
    """Somebody wrote over a key of the bucket: a loud error, or the call did not need it; and no
    job is dropped by a call that failed."""
    held = await some_jobs(desk)
    desk.now = 1_000
    key = desk.bucket.keys[BUCKET_KEYS.index(name)]
    jobs = set(desk.jobs())
    desk.client.delete(key)
    desk.client.set(key, "foreign")
    try:
        await CALLS[call](desk, held)
    except NodeRefused as error:
        assert "WRONGTYPE" in str(error)
        if name != "jobs":
            assert set(desk.jobs()) >= jobs or call in ("done", "replayed", "cancel")
        assert desk.client.get(key) == b"foreign"
    else:
        assert read_key(desk.client, key) == (
            None if (name, call) == ("limits", "limit") else b"foreign"
        )
    desk.client.flushall()


async def test_a_first_write_that_is_refused_is_the_only_one(desk: Desk) -> None:
    """A push checks and saves before it schedules: what can't be saved stands nowhere."""
    await desk.push("1", 1_000)
    for name in ("jobs", "meta"):
        key = desk.bucket.keys[BUCKET_KEYS.index(name)]
        kept = desk.client.dump(key)
        desk.client.set(key, "foreign")
        before = desk.keyspace()
        for due in (0, 5_000):
            with pytest.raises(NodeRefused):
                await desk.apply(A, desk.push_record("2", due))
        assert desk.keyspace() == before
        desk.client.restore(key, 0, kept, replace=True)


# What is left


async def test_thousands_of_jobs_leave_nothing_behind(desk: Desk) -> None:
    chance = random.Random(3)
    await desk.limit(1, t0=(0, 50, 0.0), t1=(0, 0, 900.0))
    expected = set(desk.keyspace())
    for begin in range(0, 2_000, 200):
        desk.now += 1_000
        records_ = [
            desk.push_record(
                str(begin + n),
                desk.now + chance.choice([0, 100]),
                topic=f"t{n % 7}",
                priority=chance.randint(0, 2),
            )
            for n in range(200)
        ]
        await desk.apply(A, *records_)
        for _ in range(5):
            await some_changes(desk, chance)
        desk.check()
    while desk.jobs():
        desk.now += 1_000
        await desk.forward()
        for token, job in (await desk.rescue()).poisoned:
            await desk.settle(Held(HEIR, token, job), Verdict.DEAD)
        for held in await desk.lease(200):
            await desk.settle(held)
        assert desk.now < 200_000, "some jobs never end"
    assert await desk.lease(5) == []
    await desk.forward()
    desk.client.delete(*desk.bucket.keys[14:16])
    assert set(desk.keyspace()) <= expected | {"{dq0}:gauges"}
    assert set(desk.raw("gauges")) <= {b"tt1"}
    fields = {field[:1] if len(field) == 9 else field for field in desk.raw("meta")}
    known = {b"epoch", b"state", b"hold", b"replayed", b"cycle", b"turn", b"limited"}
    assert fields <= known | {b"h", b"o", b"l"}


async def some_changes(desk: Desk, chance: random.Random) -> None:
    desk.now += 50
    await desk.forward()
    held = await desk.lease(40, chance.choice([C, D]))
    for one in held:
        fate = chance.random()
        if fate < 0.6:
            await desk.settle(one)
        elif fate < 0.7:
            await desk.settle(one, Verdict.RETRY, desk.now + 100)
        elif fate < 0.8:
            await desk.cancel(one.job.id, topic=one.job.topic)
            await desk.settle(one, Verdict.RETRY, desk.now)
        elif fate < 0.9:
            await desk.push(one.job.id, desk.now, topic=one.job.topic, body=b"new")
            await desk.settle(one)
        else:
            await desk.give_back(one)
    for job in chance.sample(sorted(desk.jobs().values(), key=str), 3):
        await desk.write(records.cancel(desk.next_stamp(), job))
    await desk.lease(5, D)
    await desk.rescue(D)


def test_every_script_is_named_by_a_method() -> None:
    """One Lua file a transition, named as the method of the store, or prepended to one."""
    from importlib import resources

    from dq.queue.store import Store

    names = {
        path.name.removesuffix(".lua")
        for path in (resources.files("dq.queue") / "lua").iterdir()
        if path.name.endswith(".lua")
    }
    store = Store()
    methods: dict[str, Any] = vars(store)
    shared = {"job", "bucket", "changes", "push", "cancel", "move", "settle", "runs", "returns"}
    assert {f"_{name}" for name in names - shared} == set(methods)
