"""What another host changed in SQL is brought here at the next look; SQL is left alone as long as
nothing changes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.core.node_file import FILE, AddedNode, NodeFile, read_node_file
from dq.core.topic import Topic
from dq.db.admin_store import AdminStore, token_digest
from dq.db.changes import Changes
from dq.db.database import Database
from dq.db.node_store import NodeStore
from dq.db.repository import Repository
from dq.db.token_book import TokenBook
from dq.db.topic_book import TopicBook
from dq.workers.following import Following

NODES = NodeFile(added=(AddedNode("other", "redis://127.0.0.1:1"),))


class Host:
    """This host's part; `reloads` counts how often the workers were replaced."""

    def __init__(self, database: Database, folder: Path) -> None:
        repository = Repository(database)
        self.folder = folder
        self.reloads = 0
        self.following = Following(
            Changes(database),
            TopicBook(folder / "topics.json", repository),
            TokenBook(folder / "tokens.json", AdminStore(database)),
            NodeStore(repository, folder),
            NodeFile(),
            folder,
            self._reload,
        )

    def _reload(self, _: Path) -> None:
        self.reloads += 1

    @property
    def topics(self) -> list[str]:
        return [one.topic for one in TopicBook(self.folder / "topics.json", None).all()]

    def opens(self, token: str) -> bool:
        return TokenBook(self.folder / "tokens.json", None).opens(token_digest(token))


@pytest.fixture
async def elsewhere(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def host(database: Database, tmp_path: Path) -> Host:
    folder = tmp_path / "data"
    folder.mkdir()
    host = Host(database, folder)
    await host.following.look()
    return host


async def test_topics_follow(host: Host, elsewhere: Database) -> None:
    repository = Repository(elsewhere)
    await repository.put_topic(Topic(topic="new", callback="http://x/"))
    await host.following.look()
    assert host.topics == ["new"]
    await repository.delete_topic("new")
    await host.following.look()
    assert host.topics == []


async def test_tokens_follow(host: Host, elsewhere: Database) -> None:
    store = AdminStore(elsewhere)
    token = await store.make_token("one", "me")
    await host.following.look()
    assert host.opens(token)
    await store.revoke_token((await store.tokens())[0].no)
    other = await store.make_token("other", "me")
    await host.following.look()
    assert not host.opens(token)
    assert host.opens(other)


async def test_nodes_follow_and_the_workers_are_replaced_once(
    host: Host, elsewhere: Database, tmp_path: Path
) -> None:
    await NodeStore(Repository(elsewhere), tmp_path).put(NODES)
    for _ in range(3):
        await host.following.look()
    assert read_node_file(host.folder / FILE) == NODES
    assert host.reloads == 1


@pytest.mark.parametrize("name", ["topics.json", "tokens.json", FILE])
async def test_a_file_that_was_lost_comes_back(
    host: Host, elsewhere: Database, tmp_path: Path, name: str
) -> None:
    await Repository(elsewhere).put_topic(Topic(topic="new", callback="http://x/"))
    await AdminStore(elsewhere).make_token("one", "me")
    await NodeStore(Repository(elsewhere), tmp_path).put(NODES)
    await host.following.look()
    text = (host.folder / name).read_bytes()
    (host.folder / name).write_bytes(b"{")
    await host.following.look()
    assert (host.folder / name).read_bytes() == text


async def test_sqlite_is_asked_only_when_something_was_written(
    host: Host, database: Database, elsewhere: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    read = database.read

    @asynccontextmanager
    async def counted() -> AsyncIterator[AsyncConnection]:
        nonlocal asked
        asked += 1
        async with read() as conn:
            yield conn

    for _ in range(2):
        time.sleep(0.15)  # a commit just now could have been followed by another
        await host.following.look()
    monkeypatch.setattr(database, "read", counted)
    for _ in range(5):
        await host.following.look()
    assert asked == (0 if database.is_sqlite else 5)
    await Repository(elsewhere).put_topic(Topic(topic="new", callback="http://x/"))
    await host.following.look()
    assert host.topics == ["new"]
