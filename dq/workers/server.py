"""dq-server: takes the producers' calls.

Each push is in this process's log and on the disk, and in Redis, before it is answered. It reads
topics from memory; SQL is asked only for what is finished and when topics are changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from dq.api.deps import Api
from dq.api.front import serving
from dq.core import clock
from dq.core.errors import DatabaseAway, NodeAway
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.repository import Repository
from dq.db.topic_book import TopicBook
from dq.journal.audit import Audit
from dq.journal.reader import Reader
from dq.log.neighbours import Neighbours
from dq.queue.nodes import Nodes
from dq.queue.records import digest_of
from dq.queue.schedule import Schedule
from dq.queue.store import read_position
from dq.queue.writer import ANSWER_WITHIN_MS, CONFIRMED_WITHIN_MS
from dq.workers.base import Context
from dq.workers.outfit import open_outfit, work_until_stopping

LOOK_S = 0.5
READY_S = 1.0
SCHEMA_WITHIN_MS = 3_000

_log = logging.getLogger(__name__)


class Readiness:
    """Whether jobs can be taken and delivered here, looked at once a second."""

    def __init__(self, nodes: Nodes, topics: TopicBook, database: Database, root: Path) -> None:
        self._nodes = nodes
        self._topics = topics
        self._database = database
        self._neighbours = Neighbours(root)
        self._parts: dict[str, str] = {"nodes": "not asked yet"}

    def parts(self) -> Mapping[str, str]:
        """Each part's state, "ok" or what is missing in words."""
        return self._parts

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._parts = {
                "nodes": await self._nodes_state(),
                "consumers": self._consumers_state(),
                "database": await self._database_state(),
            }
            await asyncio.sleep(READY_S)

    async def _nodes_state(self) -> str:
        trouble = []
        for node in self._nodes.all:
            for bucket in node.buckets[:1]:
                try:
                    epoch, state, _ = await read_position(bucket, b"")
                except NodeAway as error:
                    trouble.append(error.detail)
                    continue
                if not epoch or state != "ready":
                    trouble.append(f"{node.name} is being restored")
        return "; ".join(trouble) if len(trouble) >= len(self._nodes.all) else "ok"

    def _consumers_state(self) -> str:
        everyone = self._neighbours.look()
        consumers = [one for one in everyone if one.head.process.startswith("dq-consumer")]
        return "ok" if any(one.is_alive() for one in consumers) else "unknown"

    async def _database_state(self) -> str:
        """SQL being away stops no job: it is told, but dq is ready."""
        try:
            await self._database.check()
        except DatabaseAway:
            return "unknown"
        return "ok"


async def run(ctx: Context) -> None:
    """The child's work."""
    settings = ctx.settings
    root = settings.data_dir / "log"
    is_replicated = settings.durability == "replicated"
    outfit = await open_outfit(
        ctx,
        lazy=settings.durability == "memory",
        asks_replica=is_replicated,
        answer_within_ms=CONFIRMED_WITHIN_MS if is_replicated else ANSWER_WITHIN_MS,
    )
    database = Database(settings.database_url)
    await database.open()
    repository = Repository(database)
    await _wait_for_schema(repository)
    topics = TopicBook(settings.data_dir / "topics.json", repository)
    schedule = Schedule(outfit.writer, outfit.nodes, lambda name: _is_limited(topics, name))
    journal = JournalStore(database, digest_of)
    reader = Reader(root, journal)
    audit = Audit(outfit.nodes, outfit.store, journal, root)
    readiness = Readiness(outfit.nodes, topics, database, root)
    deps = Api(settings, schedule, topics, reader, readiness.parts, audit)
    async with serving(deps, ctx.sockets["api"]):
        ctx.ready()
        await work_until_stopping(ctx, readiness.run(), _follow_topics(topics))
    await outfit.close()
    await database.close()


async def _wait_for_schema(repository: Repository) -> None:
    """dq-journal makes it at a first start; with SQL away the topics last known do."""
    deadline_ms = clock.mono_ms() + SCHEMA_WITHIN_MS
    while not await repository.is_there():
        if clock.mono_ms() > deadline_ms:
            _log.warning("starting without SQL: topics are those last known")
            return
        await asyncio.sleep(0.05)


def _is_limited(topics: TopicBook, name: str) -> bool:
    topic = topics.get(name)
    return topic is not None and (topic.concurrency is not None or topic.rate is not None)


async def _follow_topics(topics: TopicBook) -> None:
    while True:
        topics.refresh()
        await asyncio.sleep(LOOK_S)
