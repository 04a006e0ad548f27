"""dq-redis-checker: watches the nodes, begins their buckets, keeps the topics of this host current.

An outage is told twice: when it begins, and when it ends with its length.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from redis.exceptions import RedisError

from dq.core import clock
from dq.core.errors import DatabaseAway, NodeAway, NodeFull
from dq.db.database import Database
from dq.db.repository import Repository
from dq.db.topic_book import TopicBook
from dq.queue.keys import NODE_KEY
from dq.queue.nodes import Node, Nodes, ask
from dq.queue.store import Store, read_position
from dq.workers.base import Context
from dq.workers.outfit import open_nodes, work_until_stopping

_log = logging.getLogger(__name__)

EACH_S = 1.0
AWAY_EACH_S = 0.1


class Checker:
    """Looks at each node once a second."""

    def __init__(self, nodes: Nodes, store: Store) -> None:
        self._nodes = nodes
        self._store = store
        self._away_since_ms: dict[str, float] = {}
        self._looked_into: set[str] = set()

    async def watch(self, node: Node) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.tick(node)
            except (NodeAway, NodeFull, RedisError) as error:
                self._tell_away(node, error)
                await asyncio.sleep(AWAY_EACH_S)
            else:
                self._tell_back(node)
                await asyncio.sleep(EACH_S)

    async def tick(self, node: Node) -> None:
        """One look: a bucket that is not there is begun. Raises NodeAway, RedisError."""
        await self._check_memory_policy(node)
        for bucket in node.buckets:
            epoch, _, _ = await read_position(bucket, b"")
            if epoch:
                bucket.epoch = epoch
                continue
            await ask(node, node.client.hsetnx(NODE_KEY, "buckets", len(node.buckets)))
            bucket.epoch, _ = await self._store.found(bucket, secrets.token_hex(8).encode())
            _log.info("%s was empty and has been begun", bucket.name)

    async def _check_memory_policy(self, node: Node) -> None:
        if node.name not in self._looked_into or node.name in self._away_since_ms:
            self._looked_into.add(node.name)
            memory = await ask(node, node.client.info("memory"))
            policy = memory.get("maxmemory_policy", "noeviction")
            if policy != "noeviction":
                _log.error(
                    "%s throws keys away when it is full (maxmemory-policy %s): jobs would be "
                    "lost; set it to noeviction",
                    node.name,
                    policy,
                )

    def _tell_away(self, node: Node, error: Exception) -> None:
        if node.name not in self._away_since_ms:
            self._away_since_ms[node.name] = clock.mono_ms()
            _log.error("node %s is down: %s", node.name, error)

    def _tell_back(self, node: Node) -> None:
        since_ms = self._away_since_ms.pop(node.name, None)
        if since_ms is not None:
            seconds = (clock.mono_ms() - since_ms) / 1000
            _log.warning("node %s is back after %.1f s", node.name, seconds)


async def follow_topics(topics: TopicBook, repository: Repository) -> None:
    """Bring in what other hosts changed. Until cancelled."""
    away_since_ms: float | None = None
    while not await repository.is_there():
        await asyncio.sleep(EACH_S)  # dq-journal makes the schema, and tells if it can't
    while True:
        try:
            await topics.sync()
        except DatabaseAway as error:
            if away_since_ms is None:
                away_since_ms = clock.mono_ms()
                _log.error("topics are those last known, SQL is away: %s", error.detail)
        else:
            away_since_ms = None
        await asyncio.sleep(EACH_S)


async def run(ctx: Context) -> None:
    """The child's work."""
    nodes = await open_nodes(ctx.settings)
    database = Database(ctx.settings.database_url)
    await database.open()
    repository = Repository(database)
    topics = TopicBook(ctx.settings.data_dir / "topics.json", repository)
    checker = Checker(nodes, Store())
    ctx.ready()
    watches = (checker.watch(node) for node in nodes.all)
    await work_until_stopping(ctx, follow_topics(topics, repository), *watches)
    await nodes.close()
    await database.close()
