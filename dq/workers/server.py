"""dq-server: takes the producers' calls.

Each push is in this process's log and on the disk, and in Redis, before it is answered. It reads
topics from memory; SQL is asked only for what is finished and when topics are changed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Mapping

from dq.api.deps import Api
from dq.api.front import serving
from dq.core.errors import DatabaseAway, NodeAway
from dq.core.pace import next_turn
from dq.db.admin_store import AdminStore
from dq.db.database import Database
from dq.db.dead_letters import DeadLetters
from dq.db.journal_store import JournalStore
from dq.db.repository import Repository
from dq.db.token_book import TokenBook
from dq.db.topic_book import TopicBook
from dq.journal.audit import Audit
from dq.journal.dead import DeadJobs
from dq.journal.reader import Reader
from dq.log.neighbours import Neighbours
from dq.queue.nodes import Nodes
from dq.queue.records import digest_of
from dq.queue.schedule import Schedule
from dq.queue.store import read_position
from dq.queue.writer import ANSWER_WITHIN_MS, CONFIRMED_WITHIN_MS
from dq.workers.base import Context
from dq.workers.outfit import open_outfit, work_until_stopping
from dq.workers.tokens import follow_tokens

LOOK_S = 0.5
READY_S = 1.0
SCHEMA_WITHIN_S = 3.0
GC_EACH = 20_000
"""So many objects made and not freed before the collector looks at the young ones."""

_log = logging.getLogger(__name__)


class Readiness:
    """Whether jobs can be taken and delivered here, looked at once a second."""

    def __init__(
        self, nodes: Nodes, topics: TopicBook, database: Database, neighbours: Neighbours
    ) -> None:
        self._nodes = nodes
        self._topics = topics
        self._database = database
        self._neighbours = neighbours
        self._checked: object = None
        self._parts = {"nodes": "not asked yet", "consumers": "unknown", "database": "unknown"}

    def parts(self) -> Mapping[str, str]:
        """Each part's state, "ok" or what is missing in words."""
        return self._parts

    async def run(self) -> None:
        """Until cancelled. Each by itself: SQL that hangs must not hide what the nodes do."""
        await asyncio.gather(
            self._follow("nodes", self._nodes_state),
            self._follow("consumers", self._consumers_state),
            self._follow("database", self._database_state),
        )

    async def _follow(self, part: str, look: Callable[[], Awaitable[str]]) -> None:
        while True:
            state = await look()
            self._parts = {**self._parts, part: state}
            await next_turn(READY_S)

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

    async def _consumers_state(self) -> str:
        everyone = self._neighbours.look()
        consumers = [one for one in everyone if one.head.process.startswith("dq-consumer")]
        return "ok" if any(one.is_alive() for one in consumers) else "unknown"

    async def _database_state(self) -> str:
        """SQL being away stops no job: it is told, but dq is ready."""
        trace = self._database.trace()
        if trace is None or trace != self._checked:
            self._checked = None
            try:
                await self._database.check()
            except DatabaseAway:
                return "unknown"
            self._checked = trace
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
    neighbours = Neighbours(root)
    neighbours.look()
    schedule = Schedule(
        outfit.writer, outfit.nodes, lambda name: _is_limited(topics, name), neighbours
    )
    journal = JournalStore(database, digest_of)
    reader = Reader(root, journal)
    audit = Audit(outfit.nodes, outfit.store, journal, root)
    readiness = Readiness(outfit.nodes, topics, database, neighbours)
    dead = DeadJobs(DeadLetters(database), journal, schedule, topics, root)
    tokens = TokenBook(settings.data_dir / "tokens.json", AdminStore(database))
    deps = Api(settings, schedule, topics, reader, readiness.parts, audit, dead, tokens)
    _spare_the_collector()
    async with serving(deps, ctx.sockets["api"]):
        ctx.ready()
        await work_until_stopping(
            ctx, readiness.run(), _follow_topics(topics), follow_tokens(tokens)
        )
    await outfit.close()
    await database.close()


def _spare_the_collector() -> None:
    """What is here now stays, and what a push leaves behind is freed by its count: there is
    little for the collector to find."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EACH)


async def _wait_for_schema(repository: Repository) -> None:
    """dq-journal makes it at a first start; with SQL away, or hanging, the topics last known do."""
    try:
        async with asyncio.timeout(SCHEMA_WITHIN_S):
            while not await repository.is_there():
                await asyncio.sleep(0.05)
    except TimeoutError:
        _log.warning("starting without SQL: topics are those last known")


def _is_limited(topics: TopicBook, name: str) -> bool:
    topic = topics.get(name)
    return topic is not None and (topic.concurrency is not None or topic.rate is not None)


async def _follow_topics(topics: TopicBook) -> None:
    while True:
        topics.refresh()
        await next_turn(LOOK_S)
