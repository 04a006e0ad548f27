"""Whether a Redis can become a node: asked before it is saved, in the words of whoever asks.

Nothing of it stays behind in that Redis. What would make it lose jobs, or mix them up with those of
another dq, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dq.core.errors import DqError, NodeAway, NodeFull
from dq.queue.inspect import Server, info_of, server_of
from dq.queue.keys import NODE_KEY, bucket_keys
from dq.queue.nodes import Node, NodeRefused, ask, make_client, node_name

TIMEOUT_S = 4.0
OLDEST = (6, 2)
_MOST_BUCKETS = 512


class Unfit(DqError):
    """This Redis can't be a node; the text says why and what to do."""


class Probe(msgspec.Struct, frozen=True):
    """A Redis that can be a node, under this name."""

    name: str
    server: Server


async def probe(url: str, others: Sequence[Node]) -> Probe:
    """Look at the Redis at `url`. Raises Unfit, within some seconds."""
    try:
        name = node_name(url)
        node = Node(url, name, make_client(url))
    except ValueError as error:
        raise Unfit(str(error)) from None
    if any(other.name == name for other in others):
        raise Unfit(f"{name} is a node already")
    try:
        return await _look_at(node, others)
    except (NodeAway, NodeFull, NodeRefused) as error:
        raise Unfit(str(getattr(error, "detail", "") or error)) from None
    finally:
        await node.close()


async def _look_at(node: Node, others: Sequence[Node]) -> Probe:
    info = info_of(await ask(node, node.client.info(), TIMEOUT_S))
    server = server_of(info)
    _check_server(server, info)
    run_id = info.get("run_id")
    for other in others:
        if run_id and run_id == await _run_id(other):
            raise Unfit(f"it is the same server as the node {other.name}")
    await ask(node, node.client.set("dq:probe", "1", px=1_000), TIMEOUT_S)
    await ask(node, node.client.execute_command("EVAL", "return 1", 0), TIMEOUT_S)
    if jobs := await _count_jobs(node):
        raise Unfit(
            f"it holds {jobs} unfinished jobs already: another dq works with it; "
            "two must not share one Redis"
        )
    return Probe(node.name, server)


def _check_server(server: Server, info: Any) -> None:
    if server.role not in ("master", ""):
        raise Unfit(f"it is a {server.role}: give its master, or its Sentinels")
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise Unfit(f"it is {server.product} {version}; dq needs 6.2 or newer")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise Unfit(
            f"it throws keys away when it is full (maxmemory-policy {policy}), and jobs with "
            "them: set it to noeviction first"
        )


async def _run_id(node: Node) -> Any:
    try:
        return info_of(await ask(node, node.client.info("server"), TIMEOUT_S)).get("run_id")
    except (NodeAway, NodeFull, NodeRefused):
        return None  # it can't be compared


async def _count_jobs(node: Node) -> int:
    """Of a dq that uses it, or used it."""
    count = await ask(node, node.client.hget(NODE_KEY, "buckets"), TIMEOUT_S)
    buckets = min(int(count), _MOST_BUCKETS) if count is not None else 0
    jobs = 0
    for number in range(buckets):
        jobs += await ask(node, node.client.hlen(bucket_keys(number)[1]), TIMEOUT_S)
    return jobs
