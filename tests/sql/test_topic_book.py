"""Topics as processes see them: through the file, with SQL and without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.db.database import Database
from dq.db.migrate import migrate
from dq.db.repository import Repository
from dq.db.topic_book import TopicBook

A, B = Topic(topic="a", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Topic(topic="b")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topics.json"


@pytest.fixture
def book(path: Path, repository: Repository) -> TopicBook:
    return TopicBook(path, repository)


async def test_other_processes_see_a_change_in_the_file(book: TopicBook, path: Path) -> None:
    follower = TopicBook(path, None)
    assert follower.all() == []
    assert await book.put(A)
    assert book.get("a") == A
    assert follower.refresh()
    assert not follower.refresh()
    assert follower.get("a") == A
    assert not await book.put(Topic(topic="a", delay=5))
    assert await book.put(B)
    assert follower.refresh()
    assert [(topic.topic, topic.delay) for topic in follower.all()] == [("a", 5), ("b", 0)]
    assert await book.delete("a")
    assert not await book.delete("a")
    assert follower.refresh()
    assert follower.get("a") is None


async def test_the_file_keeps_secrets_from_other_users(book: TopicBook, path: Path) -> None:
    await book.put(A)
    assert path.stat().st_mode & 0o077 == 0
    assert not [name for name in path.parent.iterdir() if name.name.startswith(".topics")]


async def test_another_host_hears_of_a_change(
    book: TopicBook, path: Path, repository: Repository
) -> None:
    elsewhere = TopicBook(path.parent / "elsewhere.json", repository)
    await elsewhere.put(A)
    assert await book.sync()
    assert not await book.sync()
    assert book.get("a") == A
    assert TopicBook(path, None).get("a") == A
    await elsewhere.delete("a")
    assert await book.sync()
    assert book.all() == []


async def test_without_sql_the_last_known_topics_stay(book: TopicBook, path: Path) -> None:
    await book.put(A)
    gone = Database("mysql+aiomysql://root@127.0.0.1:1/dq", timeout_s=1)
    await gone.open()
    restarted = TopicBook(path, Repository(gone))
    assert restarted.get("a") == A
    for call in (restarted.put(B), restarted.delete("a"), restarted.sync()):
        with pytest.raises(DatabaseAway):
            await call
    assert restarted.all() == [A]
    await gone.close()
    with pytest.raises(DatabaseAway):
        await TopicBook(path, None).put(B)


@pytest.mark.parametrize("damage", [b"", b'{"revision": 1, "topics": [', b"[]", b"\xff"])
async def test_a_broken_file_is_reported_and_made_anew(
    book: TopicBook, path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await book.put(A)
    path.write_bytes(damage)
    assert not book.refresh()
    assert not book.refresh()
    assert caplog.text.count("can't be read") == 1
    assert book.get("a") == A
    assert await book.sync()
    assert TopicBook(path, None).get("a") == A


async def test_a_missing_file_is_made_anew(
    book: TopicBook, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await book.put(A)
    path.unlink()
    assert not book.refresh()
    assert not book.refresh()
    assert caplog.text.count("can't be read") == 1
    assert book.get("a") == A
    assert await book.sync()
    assert TopicBook(path, None).get("a") == A


async def test_changes_by_two_books_at_once_are_all_in_the_file(
    path: Path, repository: Repository
) -> None:
    books = [TopicBook(path, repository) for _ in range(2)]
    puts = [books[n % 2].put(Topic(topic=f"t{n}")) for n in range(10)]
    assert all(await asyncio.gather(*puts))
    assert len(TopicBook(path, None).all()) == 10


@pytest.fixture
async def new_database(tmp_path: Path) -> AsyncIterator[Repository]:
    url = f"sqlite+aiosqlite:///{tmp_path}/new.db"
    migrate(url)
    database = Database(url)
    await database.open()
    yield Repository(database)
    await database.close()


@pytest.mark.parametrize("first_call", ["sync", "put", "delete"])
async def test_a_database_made_anew_gets_the_known_topics(
    book: TopicBook, path: Path, new_database: Repository, first_call: str
) -> None:
    await book.put(A)
    await book.put(B)
    again = TopicBook(path, new_database)
    calls = {
        "sync": again.sync(),
        "put": again.put(Topic(topic="c")),
        "delete": again.delete("nobody"),
    }
    await calls.pop(first_call)
    for unused in calls.values():
        unused.close()
    expected = {"a", "b", "c"} if first_call == "put" else {"a", "b"}
    assert {topic.topic for topic in await new_database.list_topics()} == expected
    assert {topic.topic for topic in TopicBook(path, None).all()} == expected
