"""dq-journal: remembers. It ships the writers' logs into SQL and into the files for people, takes
over from writers that died, mails about jobs that died, and forgets what finished long ago.

The five run side by side: SQL or SMTP being away holds up nothing but themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Callable

from dq.core.errors import DatabaseAway, NodeAway
from dq.core.settings import Settings
from dq.db.counts import Counts
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.db.repository import Repository
from dq.db.topic_book import TopicBook
from dq.delivery.dead_mail import DeadMail
from dq.delivery.post import Post
from dq.journal.files import DayFiles
from dq.journal.heir import Heir
from dq.journal.retention import Retention
from dq.journal.shipper import Shipper
from dq.queue.nodes import Nodes, ask
from dq.queue.records import digest_of
from dq.workers.base import Context
from dq.workers.outfit import open_outfit, work_until_stopping
from dq.workers.presence import Presence

GC_EACH = 20_000
"""Objects made before young garbage is looked for: some thousand records are in hand at a time."""

_log = logging.getLogger(__name__)


async def run(ctx: Context) -> None:
    """The child's work."""
    gc.set_threshold(GC_EACH)
    settings = ctx.settings
    root = settings.data_dir / "log"
    outfit = await open_outfit(ctx, lazy=True, answer_within_ms=None)
    database = Database(settings.database_url)
    store = JournalStore(database, digest_of)
    files = DayFiles(settings.log_dir, settings.data_dir / "told.json")
    names = {bucket.name for bucket in outfit.nodes.buckets}
    nodes = outfit.nodes

    async def retire(writer: bytes) -> None:
        await forget_writer(nodes, writer)

    shipper = Shipper(root, store, files, names, retire)
    heir = Heir(outfit.nodes, outfit.store, outfit.writer, root)
    mail = _dead_mail(settings, database, store, shipper.has_deaths)
    topics = TopicBook(settings.data_dir / "topics.json", None)
    retention = Retention(store, topics, Counts(database))
    presence = Presence(Repository(database), settings.data_dir)
    ctx.ready()

    async def make_schema() -> None:
        await _in_daemon_thread(lambda: migrate(settings.database_url))

    await database.open()
    await work_until_stopping(
        ctx,
        heir.run(),
        shipper.run_files(),
        shipper.run_sql(make_schema),
        mail.run(),
        retention.run(),
        presence.run(),
    )
    await outfit.close()
    await _last_words(shipper)
    await presence.end()
    await database.close()


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """As `asyncio.to_thread`, but a process that is to leave does not wait for it: a database that
    hangs would hold it for minutes."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if over.done():
            return
        if error is None:
            over.set_result(None)
        else:
            over.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as trouble:
            error = trouble
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="schema", daemon=True).start()
    await over


async def _last_words(shipper: Shipper) -> None:
    """All others have stopped before: bring everything up to date once more."""
    while shipper.tell():
        continue
    try:
        while await shipper.ship():
            continue
    except DatabaseAway as error:
        _log.warning("SQL is away, it catches up after the next start: %s", error.detail)


def _dead_mail(
    settings: Settings, database: Database, store: JournalStore, has_deaths: asyncio.Event
) -> DeadMail:
    topics = TopicBook(settings.data_dir / "topics.json", None)
    repository = Repository(database)
    return DeadMail(store, repository, topics, Post(settings, repository), has_deaths)


async def forget_writer(nodes: Nodes, writer: bytes) -> None:
    """The log of a dead writer goes; its positions in the buckets with it."""
    for bucket in nodes.buckets:
        command = bucket.node.client.hdel(
            bucket.keys[0], b"h" + writer, b"o" + writer, b"l" + writer
        )
        try:
            await ask(bucket.node, command)
        except NodeAway as error:
            _log.debug("the position of %s stays: %s", writer.hex(), error.detail)
