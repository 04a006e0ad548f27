"""The writer behind a connection that is cut: what was carried out but not told is not done again,
and its answer is not another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dq.core import clock
from dq.queue import records
from dq.queue.nodes import Bucket
from dq.queue.records import Code, Verdict
from dq.queue.store import Store
from dq.queue.writer import Writer
from tests.redis.cutting_proxy import CuttingProxy
from tests.redis.writing import (
    DUE_MS,
    KEEP,
    REJECT,
    REPLACE,
    a_push,
    applied,
    check_as_logged,
    nodes_of,
    submit_all,
    writing,
)
from tests.valkey import Valkey


@pytest.fixture
async def proxy(valkey: Valkey, tmp_path: Path) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(valkey.socket, valkey.folder / "p") as proxy:
        yield proxy


@pytest.fixture
async def cut_off(
    valkey: Valkey, proxy: CuttingProxy, tmp_path: Path
) -> AsyncIterator[tuple[Writer, Bucket]]:
    """A writer whose Valkey is behind the proxy, and its bucket."""
    valkey.client().flushall()
    async with (
        nodes_of(tmp_path, proxy.url, buckets=1) as nodes,
        writing(nodes, tmp_path / "log") as writer,
    ):
        yield writer, nodes.buckets[0]


@pytest.mark.parametrize("what", ["replies", "calls"])
async def test_what_was_carried_out_but_not_told_is_not_done_again(
    cut_off: tuple[Writer, Bucket], proxy: CuttingProxy, valkey: Valkey, what: str
) -> None:
    """A repeat that took effect would be REJECTED: the job is there already."""
    writer, bucket = cut_off
    proxy.what = "replies" if what == "replies" else "calls"
    before = proxy.calls
    for number in range(3):
        proxy.cuts = 2
        assert await submit_all(writer, bucket, [number]) == [Code.CREATED]
    assert proxy.calls - before == 9
    with valkey.client() as client:
        assert applied(client, bucket, writer.name) == 3
        check_as_logged(client, writer, [bucket])


async def test_every_kind_of_outcome_is_remembered_when_its_answer_was_cut(
    cut_off: tuple[Writer, Bucket], proxy: CuttingProxy
) -> None:
    writer, bucket = cut_off
    now_ms, store = clock.now_ms(), Store()
    ids = ["cancelled", "moved", "replaced", "kept", "rejected"]
    await submit_all(writer, bucket, ids)
    await submit_all(writer, bucket, ["running", "done"], due_ms=now_ms - 1)
    leased = await store.lease(bucket, writer.name, 1, 2)
    held = {job.id: (token, job) for token, job in leased.jobs}
    jobs = {}
    for id_ in ("cancelled", "moved", "running"):
        found = await store.find(bucket, "t", id_)
        assert found is not None
        jobs[id_] = found[0]
    token, done = held["done"]
    stamp = writer.next_stamp
    wanted = {
        Code.CANCELLED: records.cancel(stamp(), jobs["cancelled"]),
        Code.RUNNING: records.cancel(stamp(), jobs["running"]),
        Code.MOVED: records.move(stamp(), jobs["moved"], DUE_MS + 1),
        Code.BUSY: records.move(stamp(), jobs["running"], DUE_MS + 1),
        Code.SETTLED: records.settle(stamp(), done, token, Verdict.DONE, 0, []),
        Code.REPLACED: a_push(writer, "replaced", REPLACE, body=b"2"),
        Code.KEPT: a_push(writer, "kept", KEEP),
        Code.REJECTED: a_push(writer, "rejected", REJECT),
        Code.CREATED: a_push(writer, "created", REJECT),
    }
    proxy.cuts = 3
    told = await asyncio.gather(*(writer.submit(bucket, record) for record in wanted.values()))
    assert told == list(wanted)
    assert proxy.cuts == 0


async def test_a_node_that_forgot_its_scripts_is_told_them_again(
    cut_off: tuple[Writer, Bucket], proxy: CuttingProxy, valkey: Valkey
) -> None:
    writer, bucket = cut_off
    for number in range(3):
        valkey.client().script_flush()
        proxy.cuts = number
        assert await submit_all(writer, bucket, [number]) == [Code.CREATED]
