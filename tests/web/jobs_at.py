"""Jobs in any state, as the journal of a running dq would have them: made by real records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dq.core import clock
from dq.core.topic import Topic
from dq.db.rows import Batch, ChangeRow, MessageRow, State
from dq.journal.files import DayFiles
from dq.journal.shipper import Shipper
from dq.queue.records import digest_of
from dq.queue.schedule import NewJob
from tests.web.conftest import Served

WRITER = b"elsewher"


class Elsewhere:
    """Another host's writer: what it reports is in the journal at once."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._pos = 0
        self._stamp = clock.now_us() - 60_000_000

    async def job(self, topic: str, id_: str, state: State, **told: Any) -> bytes:
        """A job that came to `state`; its version. `told`: body, key, and of its last attempt
        detail, reply, status, attempt, at_ms."""
        self._stamp += 1_000
        stamp, before = self._stamp, self._pos
        version = stamp.to_bytes(8, "big") + WRITER
        message = MessageRow(
            version=version,
            topic=topic,
            id=id_,
            digest=digest_of(topic, id_),
            seq=1,
            bucket="gone/0",
            stamp=stamp,
            due=stamp // 1000,
            created=stamp // 1000,
            priority=1,
            timeout_ms=0,
            bkey=told.pop("key", ""),
            body=told.pop("body", b"{}"),
        )
        self._pos += 100
        at_ms = told.pop("at_ms", stamp // 1000 + 5)
        more = {"attempt": 3, "status": 500, "detail": "HTTP 500", "ms": 12, **told}
        change = ChangeRow(
            *(version, topic, id_, message.digest, self._pos, at_ms * 1000, at_ms, int(state)),
            **more,
        )
        batch = Batch(WRITER, before, self._pos, [message], [change])
        assert await self._served.admin.journal.ship(batch) == []
        return version

    async def dead(self, topic: str, id_: str, **told: Any) -> bytes:
        return await self.job(topic, id_, State.DEAD, **told)


@asynccontextmanager
async def journaling(served: Served) -> AsyncIterator[None]:
    """What the admin itself writes is shipped meanwhile, as dq-journal does."""
    data = served.settings.data_dir
    files = DayFiles(data / "logs", data / "told.json")
    buckets = [bucket.name for bucket in served.outfit.nodes.buckets]

    async def nothing(*_: object) -> None:
        """No writer leaves here."""

    shipper = Shipper(data / "log", served.admin.journal, files, buckets, nothing)

    async def ship() -> None:
        while True:
            await shipper.ship()
            await asyncio.sleep(0.02)

    shipping = asyncio.create_task(ship())
    try:
        yield
    finally:
        shipping.cancel()
        await asyncio.wait({shipping})
        if not shipping.cancelled():
            shipping.result()


async def add_topic(served: Served, name: str, **fields: Any) -> None:
    await served.admin.topics.put(Topic(topic=name, **{"callback": "http://127.0.0.1/", **fields}))


async def push(served: Served, topic: str, id_: str, **fields: Any) -> None:
    due_ms = served.now_ms + fields.pop("delay_ms", 0)
    job = NewJob(topic=topic, id=id_, due_ms=due_ms, **{"body": b"{}", **fields})
    await served.admin.schedule.push(job)
