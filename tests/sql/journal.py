"""Makes rows of the journal, as a writer's log would give them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from dq.db.journal_store import JournalStore
from dq.db.rows import Batch, ChangeRow, MessageRow, Rejected, State

SECOND = 1_000_000
START = 1_790_000_000 * SECOND
"""Unix microseconds of the first push in these tests."""


def digest_of(topic: str, id_: str) -> bytes:
    return blake2b(f"{topic}\0{id_}".encode(), digest_size=8).digest()


class Writer:
    """One writer's log: `push` and `change` make rows, `ship` brings what was made into SQL."""

    def __init__(self, store: JournalStore, name: str) -> None:
        self.name = name.encode()[:8].ljust(8, b".")
        self.pos = 0
        self._store = store
        self._seq = 0
        self._end = 0
        self._messages: list[MessageRow] = []
        self._changes: list[ChangeRow] = []

    def push(self, id_: str, at: int, *, topic: str = "t", **other: Any) -> MessageRow:
        """A push `at` microseconds after START."""
        self._seq += 1
        self._end += 100
        stamp = START + at
        fields: dict[str, Any] = {
            "bucket": "redis-0/0",
            "due": stamp // 1000 + 60_000,
            "created": stamp // 1000,
            "priority": 1,
            "timeout_ms": 3000,
            "bkey": "",
            "body": b"{}",
            "digest": digest_of(topic, id_),
        }
        row = MessageRow(
            version=stamp.to_bytes(8, "big") + self.name,
            topic=topic,
            id=id_,
            seq=self._seq,
            stamp=stamp,
            **(fields | other),
        )
        self._messages.append(row)
        return row

    def change(self, of: MessageRow, at: int, state: State, **other: Any) -> ChangeRow:
        """A change of the version `of`, `at` microseconds after START."""
        self._end += 100
        row = ChangeRow(
            version=of.version,
            topic=of.topic,
            id=of.id,
            digest=of.digest,
            pos=self._end,
            stamp=START + at,
            at_ms=(START + at) // 1000,
            state=state,
            **other,
        )
        self._changes.append(row)
        return row

    def batch(self) -> Batch:
        return Batch(self.name, self.pos, self._end, self._messages, self._changes)

    async def ship(self) -> list[Rejected]:
        batch = self.batch()
        rejected = await self._store.ship(batch)
        self.pos, self._messages, self._changes = self._end, [], []
        return rejected


async def states(store: JournalStore) -> dict[str, str]:
    """id -> state of every job, as a search sees them."""
    page = await store.search(limit=1000)
    return {job.id: State(job.state).name for job in page.jobs}
