"""dq-redis-checker: watches the nodes, restores what they lost, audits them, and follows topics
changed elsewhere.

An outage is told twice: when it begins, and when it ends with its length (dq/workers/outages.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dq.core import clock
from dq.core.errors import DatabaseAway, NodeAway, NodeFull
from dq.core.node_file import FILE, read_node_file
from dq.db.admin_store import AdminStore
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.node_store import NodeStore
from dq.db.repository import Repository
from dq.db.token_book import TokenBook
from dq.db.topic_book import TopicBook
from dq.delivery.alarm_mail import AlarmMail
from dq.delivery.post import Post
from dq.journal.audit import Audit
from dq.journal.restore import Restorer
from dq.queue.keys import NODE_KEY
from dq.queue.nodes import Node, NodeRefused, ask
from dq.queue.records import digest_of
from dq.queue.store import Store
from dq.workers.auditing import Auditing
from dq.workers.base import Context
from dq.workers.following import bring_nodes, reload_master
from dq.workers.outages import Outage
from dq.workers.outfit import open_nodes, work_until_stopping
from dq.workers.tokens import bring_tokens

_log = logging.getLogger(__name__)

EACH_S = 1.0
AGAIN_S = 0.1
PATIENCE_MS = 3_000


class Checker:
    """Looks at each node once a second, and has restored what it lacks."""

    def __init__(self, restorer: Restorer, tell_people: Callable[[str, str], None]) -> None:
        self._restorer = restorer
        self._tell_people = tell_people
        self._looked_into: set[str] = set()
        self._waits_since_ms: dict[str, float] = {}
        self._waiting_told: set[str] = set()

    async def watch(self, node: Node) -> None:
        """Until cancelled."""
        outage = Outage(node.name, self._tell_people)
        while True:
            try:
                is_done = await self.tick(node, outage)
            except (NodeAway, NodeFull, NodeRefused) as error:
                outage.see_away(error)
                is_done = False
            await asyncio.sleep(EACH_S if is_done else AGAIN_S)

    async def tick(self, node: Node, outage: Outage) -> bool:
        """One look: a bucket that is not there is begun and restored; False when a restore has to
        wait for SQL.

        Raises NodeAway, NodeFull, NodeRefused.
        """
        await self._check_memory_policy(node, outage.is_away)
        await ask(node, node.client.hsetnx(NODE_KEY, "buckets", len(node.buckets)))
        outage.see_back()
        # All at once: what is due soon comes back first in each of them, and pushes go on in all.
        looks = (self._restorer.look_after(bucket) for bucket in node.buckets)
        away: DatabaseAway | None = None
        for found in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(found, DatabaseAway):
                away = found
            elif isinstance(found, BaseException):
                raise found
            else:
                outage.see_restored(found or 0)
        self._tell_waiting(node, away)
        if away is None:
            outage.see_whole()
        return away is None

    def _tell_waiting(self, node: Node, away: DatabaseAway | None) -> None:
        """Told when it lasts; at a first start it is over when dq-journal has made the schema."""
        if away is None:
            self._waits_since_ms.pop(node.name, None)
            self._waiting_told.discard(node.name)
            return
        since_ms = self._waits_since_ms.setdefault(node.name, clock.mono_ms())
        if clock.mono_ms() - since_ms > PATIENCE_MS and node.name not in self._waiting_told:
            self._waiting_told.add(node.name)
            _log.error("what %s lost is restored when SQL is back: %s", node.name, away.detail)

    async def _check_memory_policy(self, node: Node, was_away: bool) -> None:
        if node.name not in self._looked_into or was_away:
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
    begun_with = read_node_file(ctx.settings.data_dir / FILE)
    nodes = await open_nodes(ctx.settings)
    database = Database(ctx.settings.database_url)
    await database.open()
    repository = Repository(database)
    topics = TopicBook(ctx.settings.data_dir / "topics.json", repository)
    journal = JournalStore(database, digest_of)
    store = Store()
    restorer = Restorer(nodes, store, journal, ctx.settings.data_dir / "log")
    mail = AlarmMail(Post(ctx.settings, repository))
    checker = Checker(restorer, mail.tell)
    ctx.ready()
    root = ctx.settings.data_dir / "log"
    auditing = Auditing(nodes, store, Audit(nodes, store, journal, root), mail.tell)
    watches = (checker.watch(node) for node in nodes.all)
    tokens = TokenBook(ctx.settings.data_dir / "tokens.json", AdminStore(database))
    added = NodeStore(repository, ctx.settings.data_dir)
    following = (
        follow_topics(topics, repository),
        bring_tokens(tokens),
        bring_nodes(added, begun_with, ctx.settings.data_dir, reload_master),
    )
    await work_until_stopping(ctx, *following, auditing.run(), mail.run(), *watches)
    await nodes.close()
    await database.close()
