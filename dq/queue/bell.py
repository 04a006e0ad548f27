"""Being woken: a token in a bucket's list ends the sleep of a timer or a consumer.

Nobody polls. One blocking call per node (per bucket on a cluster, whose buckets live in different
slots) waits for a token; it is armed anew each second, so a token that got lost with a dying
process costs a second at the most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from redis.asyncio.cluster import RedisCluster

from dq.core.errors import NodeAway, NodeFull
from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import TIMEOUT_S, Bucket, Node, ask

_log = logging.getLogger(__name__)

ARM_S = 1.0
WAKE = BUCKET_KEYS.index("wake")
WORK = BUCKET_KEYS.index("work")


class Bell:
    """Calls `ring(bucket)` for each token taken, and `ring(None)` when there was none for a while.

    `may_listen` is awaited before each call: who has no room leaves the token to others.
    """

    def __init__(
        self,
        nodes: list[Node],
        which: int,
        ring: Callable[[Bucket | None], None],
        may_listen: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._groups = [group for node in nodes for group in _groups_of(node)]
        self._which = which
        self._ring = ring
        self._may_listen = may_listen

    async def listen(self) -> None:
        """Until cancelled."""
        await asyncio.gather(*(self._listen_to(group) for group in self._groups))

    async def _listen_to(self, group: list[Bucket]) -> None:
        by_key = {bucket.keys[self._which].encode(): bucket for bucket in group}
        node = group[0].node
        client = node.client
        while True:
            if self._may_listen is not None:
                await self._may_listen()
            try:
                command = client.blpop(list(by_key), timeout=ARM_S)
                answer = await ask(node, command, ARM_S + TIMEOUT_S, blocks=True)
            except NodeAway as error:
                _log.debug("not listening: %s", error.detail)
                await asyncio.sleep(0.1)
                answer = None
            self._ring(by_key[answer[0]] if answer else None)


def _groups_of(node: Node) -> list[list[Bucket]]:
    if isinstance(node.client, RedisCluster):
        return [[bucket] for bucket in node.buckets]
    return [node.buckets]


async def put_back(bucket: Bucket, which: int) -> None:
    """A token taken by one who could not use it, for another."""
    try:
        await ask(bucket.node, bucket.node.client.rpush(bucket.keys[which], b"1"))
    except (NodeAway, NodeFull) as error:
        _log.debug("token of %s not put back: %s", bucket.name, error)
