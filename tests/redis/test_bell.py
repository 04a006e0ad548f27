"""The bell: a token wakes one who listens; who rests is told of what is ready without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dq.queue import bell
from dq.queue.bell import READY, WORK, Bell
from dq.queue.nodes import Bucket, Nodes
from tests.support import wait_until_async


class Heard:
    """What was rung, and whether its listener rests."""

    def __init__(self) -> None:
        self.rung: list[Bucket | None] = []
        self.is_resting = True

    @asynccontextmanager
    async def listening(self, nodes: Nodes) -> AsyncIterator[None]:
        one = Bell(nodes.all, WORK, self.rung.append, is_resting=lambda: self.is_resting)
        task = asyncio.create_task(one.listen())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "ARM_S", 0.1)


async def test_a_token_rings_for_its_bucket(nodes: Nodes, bucket: Bucket) -> None:
    heard = Heard()
    async with heard.listening(nodes):
        await bucket.node.client.rpush(bucket.keys[WORK], b"1")
        await wait_until_async(lambda: bucket in heard.rung)
    assert not await bucket.node.client.llen(bucket.keys[WORK])


async def test_who_rests_hears_nothing_when_nothing_is_ready(nodes: Nodes) -> None:
    heard = Heard()
    async with heard.listening(nodes):
        await asyncio.sleep(0.4)
    assert heard.rung == [None]  # at first he looks himself


async def test_who_rests_hears_of_what_is_ready_without_a_token(
    nodes: Nodes, bucket: Bucket
) -> None:
    await bucket.node.client.zadd(bucket.keys[READY], {b"1topic": 0})
    heard = Heard()
    async with heard.listening(nodes):
        await wait_until_async(lambda: bucket in heard.rung)
    assert set(heard.rung) == {None, bucket}


async def test_who_is_at_work_is_told_to_look_himself(nodes: Nodes) -> None:
    heard = Heard()
    heard.is_resting = False
    async with heard.listening(nodes):
        await wait_until_async(lambda: len(heard.rung) > 2)
    assert set(heard.rung) == {None}
