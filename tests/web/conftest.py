"""The web admin on a real socket, with the real parts behind it: Valkey, SQLite, a writer's log."""

from __future__ import annotations

import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dq.core import clock
from dq.core.settings import load_settings
from dq.db.database import Database
from dq.db.migrate import migrate
from dq.log.log import Log
from dq.queue.inspect import Inspector
from dq.queue.nodes import Nodes
from dq.queue.schedule import NewJob
from dq.queue.store import Store
from dq.queue.writer import Writer
from dq.web.accounts import Accounts
from dq.web.app import make_app, serving
from dq.web.deps import Admin, Instance, ProcessLine
from dq.workers.admin import assemble
from dq.workers.outfit import Outfit
from tests.valkey import Valkey
from tests.web.browser import PASSWORD, Browser


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    server = Valkey().start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database, to be copied."""
    path = tmp_path_factory.mktemp("db") / "dq.db"
    migrate(f"sqlite+aiosqlite:///{path}")
    return path


class Served:
    """The admin under test. Its clock stands but for `turn_ms`; `admin` is what its pages see."""

    def __init__(self, folder: Path, url: str, **environ: str) -> None:
        self.settings = load_settings(
            None,
            {
                "DQ_DATA_DIR": str(folder),
                "DQ_REDIS_URLS": url,
                "DQ_BUCKETS": "2",
                "DQ_ADMIN_PASSWORD": PASSWORD,
                **environ,
            },
        )
        self.now_ms = clock.now_ms()
        self.instance = Instance(
            "here", "1", "running", "", [ProcessLine("dq-master", 7, clock.now_ms(), 0, "running")]
        )
        self.browsers: list[Browser] = []
        self.admin: Admin
        self.base = ""

    async def start(self, stack: AsyncExitStack) -> None:
        self.outfit = await self._outfit(stack)
        database = Database(self.settings.database_url, 2.0)
        await database.open()
        stack.push_async_callback(database.close)
        accounts = Accounts(self.settings.data_dir)
        accounts.prepare(self.settings.admin_password)
        self.admin = replace(
            assemble(self.settings, self.outfit, database, accounts),
            instance=lambda: self.instance,
            now_ms=lambda: self.now_ms,
            inspector=Inspector(self.outfit.nodes, 10.0),
        )
        self.base = await self.serve_again(stack)
        stack.push_async_callback(self._close_browsers)

    async def serve_again(self, stack: AsyncExitStack) -> str:
        """The same admin once more, as after a reload: it knows nothing yet. Its address."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.app = make_app(self.admin)
        await stack.enter_async_context(serving(self.app, listener))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def _outfit(self, stack: AsyncExitStack) -> Outfit:
        nodes = Nodes(self.settings.redis_urls, self.settings.buckets)
        await nodes.open(self.settings.data_dir / "nodes.json")
        store = Store()
        for bucket in nodes.buckets:
            if not bucket.node.is_away:
                bucket.epoch, _ = await store.found(bucket, b"epoch-1")
        names = [bucket.name for bucket in nodes.buckets]
        log = Log(self.settings.data_dir / "log", "test", names)
        writer = Writer(log, store, nodes.buckets, answer_within_ms=2_000)
        writer.start()
        outfit = Outfit(nodes, store, writer)
        stack.push_async_callback(outfit.close)
        return outfit

    async def _close_browsers(self) -> None:
        for browser in self.browsers:
            await browser.close()

    def browser(self, base: str = "", **headers: str) -> Browser:
        """A new visitor, not logged in."""
        self.browsers.append(Browser(base or self.base, **headers))
        return self.browsers[-1]

    async def visitor(self, user: str = "admin", base: str = "", **headers: str) -> Browser:
        """One who is logged in; `viewer` gets a password first."""
        if user == "viewer":
            await self.admin.accounts.put("viewer", PASSWORD)
        browser = self.browser(base, **headers)
        assert (await browser.log_in(user)).status == 303
        return browser

    def turn_ms(self, ms: int) -> None:
        """The admin's clock goes on by so much."""
        self.now_ms += ms

    async def push(self, topic: str, id_: str, *, delay_ms: int = 0, **more: Any) -> None:
        """An unfinished job, as a producer pushes it."""
        fields: dict[str, Any] = {"body": b"1", "due_ms": clock.now_ms() + delay_ms, **more}
        await self.admin.schedule.push(NewJob(topic=topic, id=id_, **fields))


@pytest.fixture
async def served(valkey: Valkey, empty_database: Path, tmp_path: Path) -> AsyncIterator[Served]:
    """The admin with one node that works."""
    with valkey.client() as client:
        client.flushall()
    shutil.copy(empty_database, tmp_path / "dq.db")
    async with AsyncExitStack() as stack:
        one = Served(tmp_path, valkey.url)
        await one.start(stack)
        yield one
