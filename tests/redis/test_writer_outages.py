"""The writer while its Valkey is killed, stopped, emptied or can't be heard: nothing that was
acknowledged is missing, nothing is done twice, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dq.core import clock
from dq.core.errors import NodeAway
from dq.queue.nodes import Bucket, Nodes, ask
from dq.queue.records import Code
from dq.queue.schedule import NewJob, Pushed, Schedule
from dq.queue.store import Store
from dq.queue.writer import Writer
from tests.redis.writing import (
    DUE_MS,
    REJECT,
    SOON_MS,
    a_push,
    check_as_logged,
    hasty,
    is_all_there,
    nodes_of,
    restoring,
    stored,
    submit_all,
    writing,
)
from tests.support import wait_until_async
from tests.valkey import Valkey

BOUND_S = 10.0
"""Within what they are told at the very latest on a machine that is busy; the aim is SOON_MS."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey that may be killed."""
    server = Valkey().start()
    yield server
    server.signal(signal.SIGCONT)
    server.stop()
    shutil.rmtree(server.folder)


@pytest.fixture
async def own_nodes(own: Valkey, tmp_path: Path) -> AsyncIterator[Nodes]:
    async with nodes_of(tmp_path, own.url) as nodes:
        yield nodes


@pytest.fixture
async def at_work(own_nodes: Nodes, tmp_path: Path) -> AsyncIterator[Writer]:
    async with writing(own_nodes, tmp_path / "log") as writer:
        yield writer


class Producers:
    """Push job after job, each once, for as long as they are let; `told` is what they heard."""

    def __init__(self, writer: Writer, buckets: list[Bucket]) -> None:
        self._writer = writer
        writer._answer_within_ms = SOON_MS  # and they go on with the next
        self._buckets = buckets
        self._numbers = iter(range(1_000_000))
        self._tasks = [asyncio.create_task(self._push()) for _ in range(16)]
        self.told: dict[str, Code | NodeAway] = {}
        self.may_go_on = True

    async def _push(self) -> None:
        while self.may_go_on:
            number = next(self._numbers)
            bucket = self._buckets[number % len(self._buckets)]
            try:
                record = a_push(self._writer, number, REJECT)
                self.told[str(number)] = await self._writer.submit(bucket, record)
            except NodeAway as error:
                self.told[str(number)] = error

    async def have_pushed(self, more: int) -> None:
        """Wait until so many more were acknowledged."""
        most = len(self.acknowledged()) + more
        await wait_until_async(lambda: len(self.acknowledged()) >= most, 20)

    def acknowledged(self) -> set[str]:
        assert set(self.told.values()) - {Code.CREATED} <= set(self.failures()), "done twice"
        return {id_ for id_, code in self.told.items() if code is Code.CREATED}

    def failures(self) -> list[NodeAway]:
        return [one for one in self.told.values() if isinstance(one, NodeAway)]

    async def stop(self) -> None:
        self.may_go_on = False
        async with asyncio.timeout(BOUND_S):
            await asyncio.gather(*self._tasks)


async def check_nothing_is_missing(own: Valkey, writer: Writer, producers: Producers) -> None:
    """Those that were told of an outage are in as well, each just once."""
    await producers.stop()
    buckets = producers._buckets
    with own.client() as client:
        await wait_until_async(lambda: is_all_there(client, writer, buckets), 20)
        check_as_logged(client, writer, buckets)
        there = set().union(*(stored(client, bucket) for bucket in buckets))
    assert producers.acknowledged() <= there
    assert set(producers.told) == there


# Killed


async def test_a_kill_in_the_middle_of_pushes_loses_and_doubles_nothing(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    producers = Producers(at_work, own_nodes.buckets)
    for _ in range(3):
        await producers.have_pushed(300)
        own.kill()
        own.start()
    await producers.have_pushed(300)
    await check_nothing_is_missing(own, at_work, producers)


async def test_a_node_that_comes_back_empty_is_filled_from_the_log(
    own: Valkey, own_nodes: Nodes, at_work: Writer, tmp_path: Path
) -> None:
    producers = Producers(at_work, own_nodes.buckets)
    async with restoring(own_nodes, tmp_path / "log"):
        for _ in range(2):
            await producers.have_pushed(300)
            own.kill()
            shutil.rmtree(own.folder / "appendonlydir")
            own.start()
        await producers.have_pushed(300)
        await check_nothing_is_missing(own, at_work, producers)


async def test_a_node_that_comes_back_with_older_data_gets_the_rest(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    """As after a power cut, or a replica that was behind and is the master now."""
    producers = Producers(at_work, own_nodes.buckets)
    await producers.have_pushed(600)
    own.kill()
    (path,) = (own.folder / "appendonlydir").glob("*.incr.aof")
    os.truncate(path, path.stat().st_size // 2)
    own.start()
    with own.client() as client:
        lost = len(producers.told) - sum(len(stored(client, b)) for b in own_nodes.buckets)
    assert lost > 100
    await producers.have_pushed(300)
    await check_nothing_is_missing(own, at_work, producers)


async def test_what_was_lost_comes_back_though_nothing_more_is_pushed(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    bucket = own_nodes.buckets[0]
    await submit_all(at_work, bucket, range(50))
    own.kill()
    (path,) = (own.folder / "appendonlydir").glob("*.incr.aof")
    os.truncate(path, path.stat().st_size * 2 // 3)
    own.start()
    with own.client() as client:
        assert not is_all_there(client, at_work, [bucket])
        await wait_until_async(lambda: is_all_there(client, at_work, [bucket]))
        check_as_logged(client, at_work, [bucket])


async def test_a_node_that_is_gone_is_told_in_bounded_time_and_what_was_sent_arrives_later(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    bucket = own_nodes.buckets[0]
    await submit_all(at_work, bucket, ["before"])
    own.kill()
    began_ms = clock.mono_ms()
    for number in range(3):
        with pytest.raises(NodeAway), hasty(at_work):
            await at_work.submit(bucket, a_push(at_work, number))
    assert SOON_MS * 3 <= clock.mono_ms() - began_ms <= BOUND_S * 1000
    own.start()
    assert await submit_all(at_work, bucket, ["after"]) == [Code.CREATED]
    with own.client() as client:
        assert list(stored(client, bucket).keys() ^ {"before", "0", "1", "2", "after"}) == []


async def test_one_that_may_wait_for_ever_does(
    own: Valkey, own_nodes: Nodes, tmp_path: Path
) -> None:
    """An outcome is waited for as long as it takes: its consumer has nobody to tell."""
    bucket = own_nodes.buckets[0]
    async with (
        writing(own_nodes, tmp_path / "log", answer_within_ms=SOON_MS) as producer,
        writing(own_nodes, tmp_path / "log", answer_within_ms=None) as patient,
    ):
        own.kill()
        waiting = asyncio.create_task(patient.submit(bucket, a_push(patient, "1")))
        with pytest.raises(NodeAway):
            await producer.submit(bucket, a_push(producer, "2"))
        assert not waiting.done()
        own.start()
        assert await waiting is Code.CREATED


# Stopped


async def test_a_node_that_stands_still_is_told_in_bounded_time_and_a_repeat_is_harmless(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    schedule = Schedule(at_work, own_nodes)
    job = NewJob("t", "1", b"1", DUE_MS, absolute=True)
    own.signal(signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(NodeAway), hasty(at_work):
            async with asyncio.timeout(BOUND_S):
                await schedule.push(job)
    own.signal(signal.SIGCONT)
    assert await schedule.push(job) == Pushed("kept", DUE_MS)
    found = await schedule.locate("t", "1")
    assert found is not None
    bucket, stored_job, _ = found
    assert stored_job.version.seq == 1, "the first of the three"
    with own.client() as client:
        check_as_logged(client, at_work, [bucket])


async def test_who_no_longer_waits_stops_nobody(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    """A producer hangs up while its push is under way; the push is accepted all the same."""
    bucket = own_nodes.buckets[0]
    own.signal(signal.SIGSTOP)
    gone = asyncio.create_task(at_work.submit(bucket, a_push(at_work, "gone")))
    await wait_until_async(lambda: at_work.last_seq(bucket) == 1)
    gone.cancel()
    own.signal(signal.SIGCONT)
    assert await submit_all(at_work, bucket, ["next"]) == [Code.CREATED]
    with own.client() as client:
        assert set(stored(client, bucket)) == {"gone", "next"}
    assert at_work._waiting == 0


async def test_an_answer_that_comes_too_late_is_never_taken_for_anothers(
    own: Valkey, own_nodes: Nodes
) -> None:
    node = own_nodes.all[0]
    with own.client() as client:
        client.mset({f"k{n}": n for n in range(20)})
    own.signal(signal.SIGSTOP)
    for n in range(10):
        with pytest.raises(NodeAway):
            await ask(node, node.client.get(f"k{n}"), timeout_s=0.05)
    own.signal(signal.SIGCONT)
    answers = await asyncio.gather(*(ask(node, node.client.get(f"k{n}")) for n in range(10, 20)))
    assert answers == [str(n).encode() for n in range(10, 20)]


# Emptied


async def test_flushall_is_noticed_though_nothing_more_is_pushed(
    own: Valkey, own_nodes: Nodes, at_work: Writer, tmp_path: Path
) -> None:
    for bucket in own_nodes.buckets:
        await submit_all(at_work, bucket, range(30))
    with own.client() as client:
        async with restoring(own_nodes, tmp_path / "log"):
            for _ in range(2):
                client.flushall()
                await wait_until_async(lambda: is_all_there(client, at_work, own_nodes.buckets))
        check_as_logged(client, at_work, own_nodes.buckets)


async def test_in_a_bucket_that_nobody_begins_pushes_wait_in_bounded_time(
    own: Valkey, own_nodes: Nodes, at_work: Writer
) -> None:
    bucket = own_nodes.buckets[0]
    with own.client() as client:
        client.flushall()
        with pytest.raises(NodeAway), hasty(at_work):
            await at_work.submit(bucket, a_push(at_work, "1"))
        assert client.keys("*") == []
        await Store().found(bucket, b"epoch-2")
        assert await submit_all(at_work, bucket, ["2"]) == [Code.CREATED]
        assert set(stored(client, bucket)) == {"1", "2"}


async def test_what_is_being_synced_is_not_taken_for_lost(
    own_nodes: Nodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A slow disk: sent again as a replay, a record would be applied before it is durable."""
    bucket = own_nodes.buckets[0]
    monkeypatch.setattr("dq.queue.writer.WATCH_EACH_S", 0.01)
    sync = os.fdatasync

    def slow(fd: int) -> None:
        time.sleep(0.1)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    async with writing(own_nodes, tmp_path / "slow") as writer:
        for number in range(5):
            assert await submit_all(writer, bucket, [f"s{number}"]) == [Code.CREATED]
    assert "sent again" not in caplog.text
