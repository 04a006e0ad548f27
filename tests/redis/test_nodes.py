"""The client of a node: what its errors mean, and that it is never in its own way."""

from __future__ import annotations

import asyncio
import signal

import pytest

from dq.core.errors import NodeAway
from dq.queue.nodes import MOST_COMMANDS, NodeRefused, Nodes, ask
from dq.queue.store import Store
from tests.valkey import Valkey


async def test_more_commands_than_connections_wait_for_their_turn(nodes: Nodes) -> None:
    """A thousand producers ask at a time: none is told that the node is away."""
    bucket, store = nodes.buckets[0], Store()
    finds = (store.find(bucket, "t", str(n)) for n in range(5 * MOST_COMMANDS))
    assert await asyncio.gather(*finds) == [None] * 5 * MOST_COMMANDS


async def test_those_that_never_had_their_turn_are_told_in_time_too(
    nodes: Nodes, valkey: Valkey
) -> None:
    node = nodes.all[0]
    valkey.signal(signal.SIGSTOP)
    try:
        told = await asyncio.gather(
            *(ask(node, node.client.get("k"), 0.2) for _ in range(2 * MOST_COMMANDS)),
            return_exceptions=True,
        )
    finally:
        valkey.signal(signal.SIGCONT)
    assert {type(one) for one in told} == {NodeAway}
    assert await ask(node, node.client.get("k")) is None


async def test_those_who_wait_in_the_node_keep_nobody_out(nodes: Nodes) -> None:
    node = nodes.all[0]
    sleepers = [
        asyncio.create_task(ask(node, node.client.blpop(["k"], timeout=30), 40, blocks=True))
        for _ in range(MOST_COMMANDS)
    ]
    async with asyncio.timeout(10):
        await ask(node, node.client.rpush("k", *range(MOST_COMMANDS)))
        answers = await asyncio.gather(*sleepers)
    assert len({value for _, value in answers}) == MOST_COMMANDS


@pytest.mark.parametrize("command", ["NO SUCH COMMAND", "HSET only-a-key"])
async def test_a_mistake_of_ours_is_not_taken_for_an_outage(nodes: Nodes, command: str) -> None:
    node = nodes.all[0]
    with pytest.raises(NodeRefused):
        await ask(node, node.client.execute_command(*command.split()))
