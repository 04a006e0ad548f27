"""Being woken: a token in a bucket's list ends the sleep of a timer or a consumer.

Nobody polls. One blocking call per node (per bucket on a cluster, whose buckets live in different
slots) waits for a token; it is armed anew each second, and who waits looks by himself then, so a
token that got lost with a dying process costs a second at the most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio.cluster import RedisCluster

from dq.core.errors import NodeAway, NodeFull
from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import TIMEOUT_S, Bucket, Node, ask, ask_all

_log = logging.getLogger(__name__)

ARM_S = 1.0
READY = BUCKET_KEYS.index("ready")
WAKE = BUCKET_KEYS.index("wake")
WORK = BUCKET_KEYS.index("work")


class Bell:
    """Calls `ring(bucket)` for each token taken, and `ring(None)` at first and when there was none
    for a while.

    `may_listen` is awaited before each call: who has no room leaves the token to others. While
    `is_resting` says so, `ring(bucket)` is called instead of `ring(None)`, for those that have
    something ready: a token that nobody takes may have got lost, and who rests need not look by
    himself.
    """

    def __init__(
        self,
        nodes: list[Node],
        which: int,
        ring: Callable[[Bucket | None], None],
        may_listen: Callable[[], Awaitable[object]] | None = None,
        *,
        is_resting: Callable[[], bool] | None = None,
        arm_s: float | None = None,
    ) -> None:
        self._groups = [group for node in nodes for group in _groups_of(node)]
        self._which = which
        self._ring = ring
        self._may_listen = may_listen
        self._is_resting = is_resting
        self._arm_s = arm_s or ARM_S

    async def listen(self) -> None:
        """Until cancelled."""
        self._ring(None)
        await asyncio.gather(*(self._listen_to(group) for group in self._groups))

    async def _listen_to(self, group: list[Bucket]) -> None:
        by_key = {bucket.keys[self._which].encode(): bucket for bucket in group}
        commands: list[tuple[Any, ...]] = [("BLPOP", *by_key, self._arm_s)]
        if self._is_resting is not None:
            commands += [("ZCARD", bucket.keys[READY]) for bucket in group]
        node = group[0].node
        while True:
            if self._may_listen is not None:
                await self._may_listen()
            try:
                bound_s = self._arm_s + TIMEOUT_S
                token, *counts = await ask_all(node, commands, bound_s, blocks=True)
            except NodeAway as error:
                _log.debug("not listening: %s", error.detail)
                await asyncio.sleep(0.1)
                token, counts = None, []
            if token:
                self._ring(by_key[token[0]])
            elif counts and self._is_resting is not None and self._is_resting():
                for bucket in (one for one, count in zip(group, counts, strict=True) if count):
                    self._ring(bucket)
            else:
                self._ring(None)


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
