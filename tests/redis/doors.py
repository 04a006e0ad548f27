"""Producers' doors: processes that know several nodes, and where the jobs of theirs are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import redis

from dq.core.errors import NodeAway
from dq.queue.nodes import Nodes
from dq.queue.schedule import NewJob, Pushed, Schedule
from tests.redis.writing import DUE_MS, nodes_of, stored, writing
from tests.valkey import Valkey


def is_up(server: Valkey) -> bool:
    try:
        with server.client() as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


class Door:
    """A process of its own, with a log of its own, that knows these nodes in this order."""

    def __init__(self, schedule: Schedule, nodes: Nodes) -> None:
        self.schedule = schedule
        self.nodes = nodes

    async def push(self, id_: str, topic: str = "t", **more: object) -> Pushed:
        return await self.schedule.push(NewJob(topic, id_, b"1", DUE_MS, **more))  # type: ignore[arg-type]

    async def push_all(self, ids: list[str]) -> Counter[str]:
        pushed = await asyncio.gather(*(self.push(id_) for id_ in ids))
        return Counter(one.result for one in pushed)


@asynccontextmanager
async def door(
    memory: Path, *servers: Valkey, is_limited: Callable[[str], bool] = lambda topic: False
) -> AsyncIterator[Door]:
    urls = [server.url for server in servers]
    async with (
        nodes_of(memory, *urls) as nodes,
        writing(nodes, memory / "log") as writer,
    ):
        yield Door(Schedule(writer, nodes, is_limited), nodes)


def places(door: Door, servers: list[Valkey]) -> dict[str, list[int]]:
    """Each id -> the servers on which it is, by their place in the list."""
    found: dict[str, list[int]] = {}
    by_url = {node.url: node for node in door.nodes.all}
    for number, server in enumerate(servers):
        with server.client() as client:
            for bucket in by_url[server.url].buckets:
                for id_ in stored(client, bucket):
                    found.setdefault(id_, []).append(number)
    return found


async def states(door: Door, ids: list[str]) -> Counter[str]:
    """What `find` tells of them; a node that is away is one of the answers."""

    async def state(id_: str) -> str:
        try:
            found = await door.schedule.find("t", id_)
        except NodeAway:
            return "away"
        return "unknown" if found is None else found.state

    return Counter(await asyncio.gather(*(state(id_) for id_ in ids)))
