"""Topics and settings in SQL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from dq.core.topic import Topic
from dq.db.database import Database
from dq.db.repository import Repository
from dq.db.tables import topics

FULL = Topic(
    topic="order_close",
    name="关闭订单 ✓",
    callback="http://127.0.0.1/x?y=%s",
    headers={"X-A": "1"},
    delay=1.5,
    email=["ops@example.com"],
    secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    concurrency=3,
    rate=0.5,
    paused=True,
)


async def test_a_topic_comes_back_with_its_secret(repository: Repository) -> None:
    assert await repository.put_topic(FULL)
    assert await repository.get_topic("order_close") == FULL
    changed = Topic(topic="order_close", callback="http://127.0.0.1/y")
    assert not await repository.put_topic(changed)
    assert await repository.list_topics() == [changed]


async def test_topics_differ_by_case(repository: Repository) -> None:
    for name in ("b", "B", "a"):
        assert await repository.put_topic(Topic(topic=name))
    assert [topic.topic for topic in await repository.list_topics()] == ["B", "a", "b"]
    assert await repository.delete_topic("b")
    assert not await repository.delete_topic("b")
    assert await repository.get_topic("b") is None
    assert await repository.get_topic("B") is not None


async def test_every_change_takes_a_new_revision(repository: Repository) -> None:
    revisions = [await repository.topics_revision()]
    assert revisions == [0]
    await repository.put_topic(FULL)
    revisions.append(await repository.topics_revision())
    await repository.put_topic(FULL)
    revisions.append(await repository.topics_revision())
    await repository.delete_topic("order_close")
    revisions.append(await repository.topics_revision())
    assert revisions == sorted(set(revisions))
    assert await repository.topics_snapshot() == (revisions[-1], [])


async def test_changes_at_once_are_all_kept(repository: Repository) -> None:
    names = [f"t{number}" for number in range(12)]
    await asyncio.gather(*(repository.put_topic(Topic(topic=name)) for name in names))
    assert {topic.topic for topic in await repository.list_topics()} == set(names)


async def test_a_broken_row_takes_no_other_topic_away(
    repository: Repository, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await repository.put_topic(FULL)
    async with database.begin() as conn:
        for name, doc in (("a", "{"), ("b", "[]"), ("c", '{"topic": 3}')):
            await conn.execute(sa.insert(topics).values(topic=name, doc=doc, rev=1))
        newer = '{"topic": "d", "shiny": true, "delay": 7}'
        await conn.execute(sa.insert(topics).values(topic="d", doc=newer, rev=1))
    assert await repository.list_topics() == [Topic(topic="d", delay=7), FULL]
    assert caplog.text.count("can't be read") == 3


@pytest.mark.parametrize("value", [None, 0, "text ✓", {"a": [1, None]}, "x" * 100_000])
async def test_a_setting_comes_back(repository: Repository, value: Any) -> None:
    assert await repository.get_setting("mail") is None
    await repository.put_setting("mail", "before")
    await repository.put_setting("mail", value)
    assert await repository.get_setting("mail") == value
    assert await repository.delete_setting("mail")
    assert not await repository.delete_setting("mail")


async def test_settings_are_listed_by_prefix(repository: Repository) -> None:
    for key in ("token.a", "token.b", "tokens", "tok", "Token.c"):
        await repository.put_setting(key, key)
    assert await repository.list_settings("token.") == {
        "token.a": "token.a",
        "token.b": "token.b",
    }


async def test_a_new_setting_put_by_many_at_once_is_there(repository: Repository) -> None:
    await asyncio.gather(*(repository.put_setting("mail", number) for number in range(8)))
    assert await repository.get_setting("mail") in range(8)
