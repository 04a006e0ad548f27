"""What the admin's pages need from the rest of dq.

Made once a process (dq/workers/admin.py) and handed to every page. What a page changes is changed
by the same parts that the API and the command line use; the admin has no way of its own.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.settings import Settings
from dq.db.admin_store import AdminStore, Change
from dq.db.attempts import Attempts
from dq.db.counts import Counts
from dq.db.instances import Instance, Instances, ProcessLine
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
from dq.queue.nodes import Nodes
from dq.queue.schedule import Schedule
from dq.web.accounts import Accounts
from dq.web.backlog import Backlog
from dq.web.visitor import visitor_of

__all__ = ["Admin", "Instance", "ProcessLine"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admin:
    """`instance()` tells who runs here now. `now_ms` is the clock; a test turns it."""

    settings: Settings
    accounts: Accounts
    store: AdminStore
    repository: Repository
    journal: JournalStore
    reader: Reader
    topics: TopicBook
    schedule: Schedule
    audit: Audit
    dead: DeadJobs
    lookup: Lookup
    inspector: Inspector
    nodes: Nodes
    node_store: NodeStore
    counts: Counts
    attempts: Attempts
    tokens: TokenBook
    post: Post
    instances: Instances
    backlog: Backlog
    instance: Callable[[], Instance]
    now_ms: Callable[[], int] = clock.now_ms
    host: str = field(default_factory=socket.gethostname)

    async def note(
        self,
        request: web.Request,
        action: str,
        target: str = "",
        *,
        before: str | None = None,
        after: str | None = None,
        who: str = "",
    ) -> None:
        """Write what was just done into the log of changes.

        `action` is a word like `topic.put`; `before` and `after` are for people and hold no
        secret. With SQL away it goes to the error log: what was done is done.
        """
        visitor = visitor_of(request)
        change = Change(
            self.now_ms(),
            who or visitor.user,
            action,
            target,
            before,
            after,
            visitor.address,
            self.host,
        )
        try:
            await self.store.add_change(change)
        except DatabaseAway as error:
            line = msgspec.json.encode(change).decode()
            _log.error("not in the log of changes, SQL is away (%s): %s", error.detail, line)
