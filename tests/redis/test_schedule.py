"""The producers' door over several nodes: a job is where it was put, whatever becomes of the list
of nodes, and where it can't be asked for nobody says that it is not there."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dq.core import clock
from dq.core.errors import DuplicateJob, NodeAway
from dq.queue.nodes import Nodes
from dq.queue.schedule import NewJob, Pushed, Schedule
from dq.queue.store import Store
from tests.redis.doors import Door, door, is_up, places, states
from tests.redis.writing import DUE_MS, hasty, nodes_of, writing
from tests.valkey import Valkey

IDS = [str(number) for number in range(48)]
BOUND_S = 10.0
CONSUMER = b"consumer"


@pytest.fixture(scope="module")
def started() -> Iterator[list[Valkey]]:
    servers = [Valkey().start() for _ in range(3)]
    yield servers
    for server in servers:
        server.stop()
        shutil.rmtree(server.folder)


@pytest.fixture
def three(started: list[Valkey]) -> Iterator[list[Valkey]]:
    """Three empty nodes; a test may kill them."""
    for server in started:
        server.client().flushall()
    yield started
    for server in started:
        if not is_up(server):
            server.start()


# Where a job is


async def test_jobs_are_spread_and_each_is_in_one_place(
    three: list[Valkey], tmp_path: Path
) -> None:
    async with door(tmp_path, *three) as one:
        assert await one.push_all(IDS) == {"created": 48}
        where = places(one, three)
        assert set(where) == set(IDS)
        per_node = Counter(number for (number,) in where.values())
        assert len(per_node) == 3
        assert await states(one, IDS) == {"delayed": 48}


@pytest.mark.parametrize("change", ["reordered", "one added", "one added in front"])
async def test_a_job_is_found_again_when_the_list_of_nodes_has_changed(
    three: list[Valkey], tmp_path: Path, change: str
) -> None:
    a, b, c = three
    before = [a, b, c] if change == "reordered" else [a, b]
    after = {"reordered": [c, a, b], "one added": [a, b, c]}.get(change, [c, b, a])
    async with door(tmp_path, *before) as first:
        await first.push_all(IDS)
        where = places(first, before)
    async with door(tmp_path, *after) as second:
        assert await states(second, IDS) == {"delayed": 48}
        schedule = second.schedule
        for id_ in IDS[:6]:
            assert await schedule.cancel("t", id_) == "cancelled"
            assert await schedule.cancel("t", id_) is None
        for id_ in IDS[6:12]:
            assert await schedule.reschedule("t", id_, DUE_MS + 1) == "delayed"
            found = await schedule.find("t", id_)
            assert found is not None and found.due_ms == DUE_MS + 1
        assert await second.push_all(IDS[12:]) == {"replaced": 36}
        assert places(second, three) == {id_: where[id_] for id_ in IDS[6:]}


async def test_a_node_that_was_added_gets_its_share_of_what_is_new(
    three: list[Valkey], tmp_path: Path
) -> None:
    a, b, c = three
    async with door(tmp_path, a, b) as first:
        await first.push_all(IDS)
    async with door(tmp_path, a, b, c) as second:
        assert await second.push_all([f"new {id_}" for id_ in IDS]) == {"created": 48}
        where = places(second, three)
    assert Counter(number for (number,) in where.values())[2] > 0


async def test_the_number_of_buckets_is_the_nodes_own(three: list[Valkey], tmp_path: Path) -> None:
    """A changed setting moves no job; neither does a start at which the node is away."""
    server = three[0]
    topics = [f"topic{number}" for number in range(12)]
    async with (
        nodes_of(tmp_path, server.url, buckets=3) as nodes,
        writing(nodes, tmp_path / "log") as writer,
    ):
        one = Door(Schedule(writer, nodes), nodes)
        for topic in topics:
            await one.push("1", topic)
    for is_away in (False, True):
        if is_away:
            server.kill()
        nodes = Nodes([server.url], 8)
        await nodes.open(tmp_path / "nodes.json")
        assert (nodes.all[0].is_away, len(nodes.buckets)) == (is_away, 3)
        if is_away:
            server.start()
        async with writing(nodes, tmp_path / "log") as writer:
            schedule = Schedule(writer, nodes)
            for topic in topics:
                assert await schedule.find(topic, "1")
        await nodes.close()


async def test_a_limited_topic_is_counted_in_one_place(three: list[Valkey], tmp_path: Path) -> None:
    """What was pushed before the topic had a limit stays where it is, and is found there."""
    async with door(tmp_path, *three) as free:
        await free.push_all(IDS[:24])
        where = places(free, three)
    async with door(tmp_path, *three, is_limited=lambda topic: topic == "t") as limited:
        assert await limited.push_all(IDS[24:]) == {"created": 24}
        now = places(limited, three)
        assert len({tuple(now[id_]) for id_ in IDS[24:]}) == 1
        assert await limited.push_all(IDS[:24]) == {"replaced": 24}
        assert {id_: now[id_] for id_ in IDS[:24]} == where


async def test_two_processes_that_push_the_same_ids_make_one_job_of_each(
    three: list[Valkey], tmp_path: Path
) -> None:
    a, b, c = three
    async with door(tmp_path, a, b, c) as one, door(tmp_path, c, b, a) as other:
        results = await asyncio.gather(
            *(which.push_all(IDS) for _ in range(3) for which in (one, other))
        )
        assert sum(results, Counter())["created"] == 48
        assert all(len(where) == 1 for where in places(one, three).values())


# A node is away


async def test_a_node_that_is_away_is_never_taken_for_a_job_that_is_not_there(
    three: list[Valkey], tmp_path: Path
) -> None:
    async with door(tmp_path, *three) as one:
        await one.push_all(IDS)
        where = places(one, three)
        three[1].kill()
        gone = [id_ for id_ in IDS if where[id_] == [1]]
        assert await states(one, IDS) == {"away": len(gone), "delayed": 48 - len(gone)}
        assert await states(one, ["never pushed"]) == {"away": 1}
        schedule, here = one.schedule, [id_ for id_ in IDS if where[id_] != [1]]
        async with asyncio.timeout(BOUND_S):
            for id_ in (gone[0], "never pushed"):
                with pytest.raises(NodeAway):
                    await schedule.cancel("t", id_)
                with pytest.raises(NodeAway):
                    await schedule.reschedule("t", id_, DUE_MS)
            with pytest.raises(NodeAway), hasty(schedule._writer):
                await one.push(gone[0])
        assert await schedule.cancel("t", here[0]) == "cancelled"
        assert await schedule.reschedule("t", here[1], DUE_MS) == "delayed"
        assert (await one.push(here[2])).result == "replaced"
        three[1].start()
        assert await states(one, gone) == {"delayed": len(gone)}
        assert await states(one, ["never pushed"]) == {"unknown": 1}


async def test_a_push_to_a_node_that_is_away_is_the_same_job_when_it_is_back(
    three: list[Valkey], tmp_path: Path
) -> None:
    """Told that the outcome is unknown, the producer repeats it, through any process."""
    a, b, c = three
    async with door(tmp_path, a, b, c) as one, door(tmp_path, b, c, a) as other:
        c.kill()
        with hasty(one.schedule._writer):
            told = await asyncio.gather(*(one.push(id_) for id_ in IDS), return_exceptions=True)
        late = [id_ for id_, said in zip(IDS, told, strict=True) if isinstance(said, NodeAway)]
        assert 0 < len(late) < 48, "one node away stops its own jobs only"
        c.start()
        again = await asyncio.gather(other.push_all(late), one.push_all(late))
        assert sum(again, Counter())["replaced"] >= len(late)
        where = places(one, three)
        assert set(where) == set(IDS)
        assert {id_ for id_ in IDS if where[id_] == [2]} <= set(late)
        assert all(len(numbers) == 1 for numbers in where.values())


async def test_a_node_that_is_away_at_the_start_is_used_when_it_is_there(
    three: list[Valkey], tmp_path: Path
) -> None:
    three[0].kill()
    async with door(tmp_path, *three) as one:
        assert [node.is_away for node in one.nodes.all] == [True, False, False]
        assert (await states(one, IDS))["away"] == 48
        three[0].start()
        for bucket in one.nodes.all[0].buckets:
            await Store().found(bucket, b"epoch-1")
        assert await one.push_all(IDS) == {"created": 48}


async def test_while_a_bucket_is_restored_a_job_that_is_not_found_may_still_come(
    three: list[Valkey], tmp_path: Path
) -> None:
    async with door(tmp_path, *three) as one:
        await one.push("here")
        for bucket in one.nodes.buckets:
            await bucket.node.client.hset(bucket.keys[0], "state", "restoring")
        assert await states(one, ["here", "not yet"]) == {"delayed": 1, "away": 1}
        with pytest.raises(NodeAway):
            await one.schedule.cancel("t", "not yet")


# Duplicates


@pytest.mark.parametrize("place", ["where a new one would go", "where an older list put it"])
async def test_duplicates_are_seen_on_whichever_node_they_are(
    three: list[Valkey], tmp_path: Path, place: str
) -> None:
    a, b, c = three
    before = three if place == "where a new one would go" else [b]
    async with door(tmp_path, *before) as first:
        await first.push_all(IDS)
        where = places(first, list(before))
    async with door(tmp_path, a, b, c) as second:
        for id_ in IDS[:16]:
            assert await second.push(id_, on_duplicate="keep") == Pushed("kept", DUE_MS)
            with pytest.raises(DuplicateJob):
                await second.push(id_, on_duplicate="reject")
            assert (await second.push(id_)).result == "replaced"
        same = NewJob("t", "0", b"1", DUE_MS, absolute=True)
        assert await second.schedule.push(same) == Pushed("kept", DUE_MS)
        now = places(second, three)
        assert set(now) == set(where) and all(len(numbers) == 1 for numbers in now.values())
        for how in ("keep", "reject", "replace"):
            assert (await second.push(f"free {how}", on_duplicate=how)).result == "created"


async def test_a_finished_id_is_free_again(three: list[Valkey], tmp_path: Path) -> None:
    async with door(tmp_path, *three) as one:
        await one.push("1", on_duplicate="reject")
        assert await one.schedule.cancel("t", "1") == "cancelled"
        assert (await one.push("1", on_duplicate="reject")).result == "created"


async def test_a_push_wins_though_its_hosts_clock_is_behind(
    three: list[Valkey], tmp_path: Path
) -> None:
    async with door(tmp_path, *three) as ahead, door(tmp_path, *three) as behind:
        ahead.schedule._writer.observe(clock.now_us() + 3_600_000_000)
        await ahead.push("1")
        assert await behind.schedule.reschedule("t", "1", DUE_MS + 1) == "delayed"
        assert await behind.schedule.reschedule("t", "1", DUE_MS + 2) == "delayed"
        job = NewJob("t", "1", b"newest", DUE_MS)
        assert (await behind.schedule.push(job)).result == "replaced"
        found = await ahead.schedule.find("t", "1")
        assert found is not None and found.body == b"newest"


# Running


async def test_a_running_job_is_told_as_running_on_each_node(
    three: list[Valkey], tmp_path: Path
) -> None:
    async with door(tmp_path, *three) as one:
        due_ms = clock.now_ms() - 1_000
        for id_ in IDS:
            await one.schedule.push(NewJob("t", id_, b"1", due_ms))
        for bucket in one.nodes.buckets:
            await Store().lease(bucket, CONSUMER, 1, 48)
        assert len({tuple(numbers) for numbers in places(one, three).values()}) == 3
        for id_ in IDS:
            found = await one.schedule.find("t", id_)
            assert found is not None and (found.state, found.attempt) == ("running", 1)
            assert await one.schedule.reschedule("t", id_, DUE_MS) == "running"
        with pytest.raises(DuplicateJob):
            await one.push(IDS[1], on_duplicate="reject")
        for id_ in IDS:
            assert await one.schedule.cancel("t", id_) == "running"
        assert (await one.push(IDS[0])).result == "replaced"
        assert (await one.push(IDS[1], on_duplicate="reject")).result == "replaced"


async def test_who_can_not_be_told_of_a_push_stops_no_other(
    three: list[Valkey], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Pushed | Exception) -> None:
        raise RuntimeError("it can't hear")

    async with (
        nodes_of(tmp_path, three[0].url) as nodes,
        writing(nodes, tmp_path / "log") as writer,
    ):
        schedule = Schedule(writer, nodes)
        schedule.begin_push(NewJob("t", "1", b"1", DUE_MS), fail)
        async with asyncio.timeout(BOUND_S):
            assert (await schedule.push(NewJob("t", "2", b"1", DUE_MS))).result == "created"
        assert (await schedule.find("t", "1")) is not None
    assert "it can't hear" in caplog.text
