"""dq-admin: serves the web admin.

It changes jobs as a producer would, through a log and a writer of its own, and reads the rest.
Nothing waits for it: with nodes or SQL away it starts all the same and shows just that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

from dq.core import clock
from dq.core.pace import next_turn
from dq.core.settings import Settings
from dq.db.admin_store import AdminStore
from dq.db.attempts import Attempts
from dq.db.counts import Counts
from dq.db.database import Database
from dq.db.dead_letters import DeadLetters
from dq.db.instances import Instances
from dq.db.journal_store import JournalStore
from dq.db.lookup import Lookup
from dq.db.node_store import NodeStore
from dq.db.repository import Repository
from dq.db.token_book import TokenBook
from dq.db.topic_book import TopicBook
from dq.delivery.post import Post
from dq.journal.audit import Audit
from dq.journal.dead import DeadJobs
from dq.journal.reader import Reader
from dq.queue.inspect import Inspector
from dq.queue.records import digest_of
from dq.queue.schedule import Schedule
from dq.queue.writer import ANSWER_WITHIN_MS, CONFIRMED_WITHIN_MS
from dq.web.accounts import Accounts
from dq.web.app import make_app, serving
from dq.web.backlog import Backlog
from dq.web.deps import Admin
from dq.workers.base import Context
from dq.workers.outfit import Outfit, open_outfit, work_until_stopping
from dq.workers.presence import describe_instance

LOOK_S = 1.0
SQL_TIMEOUT_S = 5.0
"""Somebody waits in front of a page: shorter than elsewhere."""


async def run(ctx: Context) -> None:
    """The child's work."""
    settings = ctx.settings
    accounts = Accounts(settings.data_dir)
    made = await asyncio.to_thread(accounts.prepare, settings.admin_password)
    if made is not None:
        _show_once(made)
    is_replicated = settings.durability == "replicated"
    outfit = await open_outfit(
        ctx,
        lazy=settings.durability == "memory",
        asks_replica=is_replicated,
        answer_within_ms=CONFIRMED_WITHIN_MS if is_replicated else ANSWER_WITHIN_MS,
    )
    database = Database(settings.database_url, SQL_TIMEOUT_S)
    await database.open()
    admin = assemble(settings, outfit, database, accounts)
    async with serving(make_app(admin), ctx.sockets["admin"]):
        ctx.ready()
        await work_until_stopping(ctx, _follow_topics(admin.topics), admin.backlog.run())
    await outfit.close()
    await database.close()


def assemble(settings: Settings, outfit: Outfit, database: Database, accounts: Accounts) -> Admin:
    """What the pages need, from the parts that this process has opened."""
    repository, store = Repository(database), AdminStore(database)
    topics = TopicBook(settings.data_dir / "topics.json", repository)
    journal = JournalStore(database, digest_of)
    root = settings.data_dir / "log"

    def is_limited(name: str) -> bool:
        topic = topics.get(name)
        return topic is not None and (topic.concurrency is not None or topic.rate is not None)

    schedule = Schedule(outfit.writer, outfit.nodes, is_limited)
    inspector = Inspector(outfit.nodes)
    return Admin(
        settings=settings,
        accounts=accounts,
        store=store,
        repository=repository,
        journal=journal,
        reader=Reader(root, journal),
        topics=topics,
        schedule=schedule,
        audit=Audit(outfit.nodes, outfit.store, journal, root),
        lookup=Lookup(database, digest_of),
        dead=DeadJobs(DeadLetters(database), journal, schedule, topics, root),
        inspector=inspector,
        nodes=outfit.nodes,
        node_store=NodeStore(repository, settings.data_dir),
        counts=Counts(database),
        attempts=Attempts(database),
        tokens=TokenBook(settings.data_dir / "tokens.json", store),
        post=Post(settings, repository),
        instances=Instances(repository, socket.gethostname(), settings.data_dir),
        backlog=Backlog(settings.data_dir / "backlog.json", inspector, clock.now_ms),
        instance=lambda: describe_instance(settings.data_dir),
    )


def _show_once(password: str) -> None:
    """On the terminal, or wherever the start is written to; in no log of ours."""
    with contextlib.suppress(OSError):  # nobody reads along: DQ_ADMIN_PASSWORD sets another
        sys.stdout.write(
            f"  web admin: user admin, password {password}\n"
            "  (made at this first start and shown once; change it on the page Access)\n"
        )
        sys.stdout.flush()


async def _follow_topics(topics: TopicBook) -> None:
    while True:
        topics.refresh()
        await next_turn(LOOK_S)
