"""The writer on a real Valkey: many become one sync and few calls, and what it can't take it
refuses: too much at once, a full disk, a disk that fails."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dq.core.errors import DiskFull, Overloaded
from dq.log.frames import NOTE, encode_frame, encode_mark
from dq.log.log import read_frames
from dq.queue import records
from dq.queue import writer as writer_module
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import Code
from dq.queue.writer import LOG_BROKEN_EXIT, Writer
from tests.redis.writing import (
    KEEP,
    REJECT,
    a_push,
    applied,
    check_as_logged,
    stored,
    submit_all,
    writing,
)
from tests.support import wait_until_async
from tests.unit.test_log_disk import fill
from tests.valkey import Valkey


class Syncs:
    """Counts the real syncs; while `gate` is closed they wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.gate = threading.Event()
        self.gate.set()
        real = os.fdatasync

        def sync(fd: int) -> None:
            self.begun += 1
            assert self.gate.wait(10)
            real(fd)

        monkeypatch.setattr(os, "fdatasync", sync)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, writer: Writer) -> Syncs:
    return Syncs(monkeypatch)


@pytest.fixture
async def on_small_disk(nodes: Nodes, small_disk: Path) -> AsyncIterator[Writer]:
    async with writing(nodes, small_disk) as writer:
        yield writer


def script_calls(valkey: Valkey) -> int:
    with valkey.client() as client:
        stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


# Groups


async def test_pushes_that_arrive_together_are_one_sync_and_few_calls(
    writer: Writer, bucket: Bucket, valkey: Valkey, syncs: Syncs
) -> None:
    await submit_all(writer, bucket, ["loads the script"])
    calls, syncs.begun = script_calls(valkey), 0
    codes = await submit_all(writer, bucket, range(1_000))
    assert codes == [Code.CREATED] * 1_000
    assert (syncs.begun, script_calls(valkey) - calls) == (1, 5)
    check_as_logged(valkey.client(), writer, [bucket])


async def test_what_arrives_during_a_sync_makes_the_next_group(
    writer: Writer, bucket: Bucket, syncs: Syncs
) -> None:
    syncs.gate.clear()
    first = asyncio.create_task(submit_all(writer, bucket, ["first"]))
    await wait_until_async(lambda: syncs.begun == 1)
    rest = asyncio.create_task(submit_all(writer, bucket, range(300)))
    await wait_until_async(lambda: writer._waiting == 301)
    assert not first.done(), "nothing is answered before the disk has it"
    syncs.gate.set()
    await asyncio.gather(first, rest)
    assert syncs.begun == 2


async def test_a_lazy_writer_answers_before_the_disk_has_it_and_syncs_soon(
    nodes: Nodes, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(nodes, tmp_path / "lazy", lazy=True) as writer:
        syncs = Syncs(monkeypatch)
        syncs.gate.clear()
        assert await submit_all(writer, bucket, range(10)) == [Code.CREATED] * 10
        await wait_until_async(lambda: syncs.begun == 1)
        syncs.gate.set()


async def test_each_bucket_has_its_own_order(writer: Writer, nodes: Nodes, valkey: Valkey) -> None:
    one, other = nodes.buckets
    await asyncio.gather(submit_all(writer, one, range(50)), submit_all(writer, other, range(70)))
    client = valkey.client()
    positions = [applied(client, bucket, writer.name) for bucket in (one, other)]
    assert positions == [50, 70] == [writer.last_seq(one), writer.last_seq(other)]
    assert list(writer.log.high[:2]) == positions
    check_as_logged(client, writer, [one, other])


async def test_large_pushes_go_in_calls_of_bounded_size(
    writer: Writer, bucket: Bucket, valkey: Valkey
) -> None:
    await submit_all(writer, bucket, ["loads the script"])
    calls = script_calls(valkey)
    codes = await submit_all(writer, bucket, range(12), body=bytes(1_000_000))
    assert codes == [Code.CREATED] * 12
    assert script_calls(valkey) - calls == 3, "four megabytes each"


async def test_a_refused_push_is_noted_before_it_is_answered(
    writer: Writer, bucket: Bucket
) -> None:
    codes = await submit_all(writer, bucket, ["1", "1", "2", "1"])
    assert codes == [Code.CREATED, Code.REJECTED, Code.CREATED, Code.REJECTED]
    assert await submit_all(writer, bucket, ["1"], KEEP) == [Code.KEPT]
    assert noted(writer) == [(2, Code.REJECTED), (4, Code.REJECTED), (5, Code.KEPT)]


def noted(writer: Writer) -> list[tuple[int, int]]:
    """Sequences that the log says were refused, and why."""
    frames = (frame for frame in read_frames(writer.log.folder) if frame.bucket == NOTE)
    return [tuple(records.unpack(frame.payload)[3:5]) for frame in frames]


# Too much


@pytest.mark.parametrize("most", ["MOST_WAITING", "MOST_WAITING_BYTES"])
async def test_more_than_may_wait_is_refused_at_once_and_nothing_of_it_is_kept(
    writer: Writer, bucket: Bucket, valkey: Valkey, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    await submit_all(writer, bucket, ["before"])
    monkeypatch.setattr(writer_module, most, 20 if most == "MOST_WAITING" else 20 * 1_000)
    valkey.signal(signal.SIGSTOP)
    try:
        waiting = asyncio.create_task(submit_all(writer, bucket, range(20), body=bytes(1_000)))
        await wait_until_async(lambda: writer.last_seq(bucket) == 21)
        with pytest.raises(Overloaded):
            await submit_all(writer, bucket, ["too much"])
    finally:
        valkey.signal(signal.SIGCONT)
    assert await waiting == [Code.CREATED] * 20
    assert await submit_all(writer, bucket, ["again"]) == [Code.CREATED]
    assert "too much" not in stored(valkey.client(), bucket)
    check_as_logged(valkey.client(), writer, [bucket])


# A full disk


async def test_a_full_disk_refuses_and_mends_without_a_restart(
    on_small_disk: Writer, bucket: Bucket, small_disk: Path, valkey: Valkey
) -> None:
    writer = on_small_disk
    await submit_all(writer, bucket, ["before"])
    ballast = fill(small_disk)
    for _ in range(3):
        with pytest.raises(DiskFull):
            await writer.submit(bucket, a_push(writer, "too much", body=bytes(20_000)))
    assert set(stored(valkey.client(), bucket)) == {"before"}
    ballast.unlink()
    assert await submit_all(writer, bucket, ["too much", "after"]) == [Code.CREATED] * 2
    assert writer.last_seq(bucket) == 3, "the sequence has no gap"
    assert writer._waiting == writer._waiting_bytes == 0
    check_as_logged(valkey.client(), writer, [bucket])


async def test_a_group_that_does_not_fit_is_refused_whole(
    on_small_disk: Writer, bucket: Bucket, small_disk: Path, valkey: Valkey
) -> None:
    """Each of them is told; none was applied, none is applied later."""
    writer = on_small_disk
    ballast = fill(small_disk, leave=2)
    pushes = (writer.submit(bucket, a_push(writer, n, body=bytes(1_000))) for n in range(50))
    told = await asyncio.gather(*pushes, return_exceptions=True)
    assert {type(one) for one in told} == {DiskFull}
    ballast.unlink()
    await submit_all(writer, bucket, ["after"])
    assert set(stored(valkey.client(), bucket)) == {"after"}


async def test_a_refusal_is_not_answered_before_the_disk_has_room_for_its_note(
    on_small_disk: Writer, bucket: Bucket, small_disk: Path, valkey: Valkey
) -> None:
    writer, client = on_small_disk, valkey.client()
    await submit_all(writer, bucket, ["1"])
    ballast = fill(small_disk)
    record = a_push(writer, "1", REJECT, body=b"")
    room = -(writer.log.end + len(encode_mark(0))) % 4096
    while len(encode_frame(0, 2, records.pack(record))) < room:
        record[9] += b"1"
    assert len(encode_frame(0, 2, records.pack(record))) == room, "it fills the last page"
    task = asyncio.create_task(writer.submit(bucket, record))
    await wait_until_async(lambda: applied(client, bucket, writer.name) == 2)
    with pytest.raises(DiskFull):
        await submit_all(writer, bucket, ["2"])
    assert not task.done()
    ballast.unlink()
    assert await task is Code.REJECTED
    assert noted(writer) == [(2, Code.REJECTED)]


# A disk that fails


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_failed_sync_ends_the_process(
    nodes: Nodes, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    """A pipe can be written to, but not synced. Nothing is acknowledged that the disk may lack."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    root = tmp_path / "breaks"
    async with writing(nodes, root, lazy=lazy, on_broken=None) as writer:
        await submit_all(writer, bucket, ["before"])
        file, ends = os.dup(writer.log._fd), os.pipe()
        os.dup2(ends[1], writer.log._fd)
        if lazy:
            assert await submit_all(writer, bucket, ["answered"]) == [Code.CREATED]
        else:
            with pytest.raises(DiskFull):
                await submit_all(writer, bucket, ["not answered"])
        await wait_until_async(lambda: ended)
        os.dup2(file, writer.log._fd)
        for fd in (file, *ends):
            os.close(fd)
    assert ended == [LOG_BROKEN_EXIT]
    assert [frame.seq for frame in read_frames(writer.log.folder)] == [1]


async def test_a_writer_whose_task_fails_does_not_look_alive(
    nodes: Nodes, bucket: Bucket, tmp_path: Path
) -> None:
    """Its log is gone below it: what a bucket lacks can't be sent again."""
    ended = asyncio.Event()
    async with writing(nodes, tmp_path / "fails", on_broken=ended.set) as writer:
        await submit_all(writer, bucket, ["before"])
        for path in writer.log.folder.glob("*.seg"):
            path.write_bytes(b"no log")
        await bucket.node.client.hdel(bucket.keys[0], b"h" + writer.name)
        async with asyncio.timeout(5):
            await ended.wait()
