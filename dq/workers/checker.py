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
from dq.core.pace import next_turn
from dq.db.admin_store import AdminStore
from dq.db.changes import Changes
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
from dq.queue.nodes import Node, NodeRefused, ask
from dq.queue.positions import look_at
from dq.queue.records import digest_of
from dq.queue.store import Store
from dq.workers.auditing import Auditing
from dq.workers.base import Context
from dq.workers.following import Following, reload_master
from dq.workers.outages import Outage
from dq.workers.outfit import open_nodes, work_until_stopping

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
            await (next_turn(EACH_S) if is_done else asyncio.sleep(AGAIN_S))

    async def tick(self, node: Node, outage: Outage) -> bool:
        """One look: a bucket that is not there is begun and restored; False when a restore has to
        wait for SQL.

        Raises NodeAway, NodeFull, NodeRefused.
        """
        await self._check_memory_policy(node, outage.is_away)
        missing = []
        for bucket, (epoch, state, _) in zip(node.buckets, await look_at(node), strict=True):
            if epoch and state == "ready":
                self._restorer.see_ready(bucket, epoch)
            else:
                missing.append(bucket)
        outage.see_back()
        # All at once: what is due soon comes back first in each of them, and pushes go on in all.
        looks = (self._restorer.look_after(bucket) for bucket in missing)
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
    following = Following(
        Changes(database), topics, tokens, added, begun_with, ctx.settings.data_dir, reload_master
    )
    await work_until_stopping(ctx, following.run(), auditing.run(), mail.run(), *watches)
    await nodes.close()
    await database.close()
