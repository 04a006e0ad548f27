"""What people configure, in SQL: topics and settings.

Every change of a topic takes a new revision in its own transaction, so two revisions that are equal
stand for the same topics. A revision is also a time, in microseconds: a database that was made
anew never repeats one. Revision 0 means that there never was a topic.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.topic import Topic, topic_to_doc
from dq.db.database import Database
from dq.db.tables import counters, settings, topics

log = logging.getLogger(__name__)

_FIELDS = frozenset(Topic.__struct_fields__)


class Repository:
    """Topics and settings. Every method raises DatabaseAway; what it answered is on disk."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_there(self) -> bool:
        """Whether the schema has been made; False too while SQL is away."""
        try:
            await self.topics_revision()
        except (DatabaseAway, sa.exc.DBAPIError):
            return False
        return True

    async def put_topic(self, topic: Topic) -> bool:
        """Register or replace a topic; True when it is new."""
        doc = encode_topic(topic)
        async with self._database.begin(to_disk=True) as conn:
            revision = await _next_revision(conn)
            is_it = topics.c.topic == topic.topic
            replaced = await conn.execute(
                sa.update(topics).where(is_it).values(doc=doc, rev=revision)
            )
            if replaced.rowcount:
                return False
            await conn.execute(sa.insert(topics).values(topic=topic.topic, doc=doc, rev=revision))
            return True

    async def get_topic(self, name: str) -> Topic | None:
        """The topic as registered, None when it is not."""
        async with self._database.read() as conn:
            doc = await conn.scalar(sa.select(topics.c.doc).where(topics.c.topic == name))
            return None if doc is None else decode_topic(doc)

    async def delete_topic(self, name: str) -> bool:
        """Forget a topic; False when there was none. Its jobs stay where they are."""
        async with self._database.begin(to_disk=True) as conn:
            await _next_revision(conn)
            deleted = await conn.execute(sa.delete(topics).where(topics.c.topic == name))
            return deleted.rowcount > 0

    async def list_topics(self) -> list[Topic]:
        """All topics, by name."""
        return (await self.topics_snapshot())[1]

    async def topics_revision(self) -> int:
        """Grows with every change of a topic; 0 when there never was one."""
        async with self._database.read() as conn:
            return await _revision(conn)

    async def topics_snapshot(self) -> tuple[int, list[Topic]]:
        """All topics by name, and a revision that they are at least as new as."""
        async with self._database.read() as conn:
            revision = await _revision(conn)
            docs = await conn.execute(sa.select(topics.c.doc).order_by(topics.c.topic))
            read = [decode_topic(doc) for doc in docs.scalars()]
        return revision, [topic for topic in read if topic is not None]

    async def get_setting(self, key: str) -> Any:
        """A setting's JSON value; None when it was never put."""
        async with self._database.read() as conn:
            value = await conn.scalar(sa.select(settings.c.v).where(settings.c.k == key))
            return None if value is None else msgspec.json.decode(value)

    async def list_settings(self, prefix: str) -> dict[str, Any]:
        """All settings whose key begins with `prefix`, by key."""
        query = sa.select(settings).where(settings.c.k >= prefix).order_by(settings.c.k)
        async with self._database.read() as conn:
            rows = [row for row in await conn.execute(query) if row.k.startswith(prefix)]
        return {row.k: msgspec.json.decode(row.v) for row in rows}

    async def put_setting(self, key: str, value: Any) -> None:
        """Keep a JSON value under `key` (up to 255 bytes)."""
        text = msgspec.json.encode(value).decode()
        async with self._database.begin(to_disk=True) as conn:
            put = sa.update(settings).where(settings.c.k == key).values(v=text)
            if (await conn.execute(put)).rowcount:
                return
            try:
                await conn.execute(sa.insert(settings).values(k=key, v=text))
            except sa.exc.IntegrityError:  # another host was quicker; the later one wins
                await conn.execute(put)

    async def delete_setting(self, key: str) -> bool:
        """Forget a setting; False when there was none."""
        async with self._database.begin(to_disk=True) as conn:
            deleted = await conn.execute(sa.delete(settings).where(settings.c.k == key))
            return deleted.rowcount > 0


def encode_topic(topic: Topic) -> str:
    """The topic as the JSON that is stored, its secret included."""
    return msgspec.json.encode(topic_to_doc(topic, show_secret=True)).decode()


def decode_topic(doc: str | bytes) -> Topic | None:
    """A stored topic. Members of a newer dq are passed over; what can't be read is reported and
    is None: one broken row must not take the other topics away."""
    try:
        members = msgspec.json.decode(doc)
        known = {name: value for name, value in members.items() if name in _FIELDS}
        return msgspec.convert(known, Topic)
    except (msgspec.DecodeError, msgspec.ValidationError, AttributeError) as error:
        log.error("a stored topic can't be read and is left out: %s: %.200s", error, doc)
        return None


async def _next_revision(conn: AsyncConnection) -> int:
    """First in the transaction: it takes the lock that puts the changes of topics in a row."""
    of_topics = counters.c.name == "topics"
    await conn.execute(sa.update(counters).where(of_topics).values(value=counters.c.value + 1))
    revision = max(await _revision(conn), clock.now_us())
    await conn.execute(sa.update(counters).where(of_topics).values(value=revision))
    return revision


async def _revision(conn: AsyncConnection) -> int:
    found = await conn.scalar(sa.select(counters.c.value).where(counters.c.name == "topics"))
    return found or 0
