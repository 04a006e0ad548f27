"""Writers at work on real nodes, and what must be true of their records when all is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import redis

from dq.core.errors import DatabaseAway, NodeAway
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.journal.restore import Restorer
from dq.log.frames import NOTE
from dq.log.log import Log, read_frames
from dq.queue import records
from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import Code, Op, StoredJob, digest_of
from dq.queue.store import Store
from dq.queue.writer import Writer

DUE_MS = 4_000_000_000_000
SOON_MS, PATIENT_MS = 300, 20_000
"""How long a submit waits for a node that is away: in `hasty` blocks, and else."""
USUAL: dict[str, Any] = {"on_broken": lambda: None, "answer_within_ms": PATIENT_MS}
REPLACE, KEEP, REJECT = range(3)
META, JOBS = BUCKET_KEYS.index("meta"), BUCKET_KEYS.index("jobs")


class Stamping(Protocol):
    """Whoever numbers records: a Writer, or a test in its place."""

    def next_stamp(self) -> int: ...


def a_push(writer: Stamping, id_: object, how: int = REPLACE, **more: Any) -> list[Any]:
    """The record of a push far in the future, by default one that a repeat would replace."""
    return records.push(
        writer.next_stamp(),
        topic=more.get("topic", "t"),
        id_=str(id_),
        body=more.get("body", b"1"),
        due_ms=more.get("due_ms", DUE_MS),
        absolute=more.get("absolute", False),
        priority=1,
        timeout_ms=0,
        key="",
        on_duplicate=how,
    )


@asynccontextmanager
async def nodes_of(memory: Path, *urls: str, buckets: int = 2) -> AsyncIterator[Nodes]:
    """Nodes whose buckets are begun, of those that are there; `memory` is the data folder."""
    nodes = Nodes(list(urls), buckets)
    await nodes.open(memory / "nodes.json")
    for bucket in nodes.buckets:
        if not bucket.node.is_away:
            bucket.epoch, _ = await Store().found(bucket, b"epoch-1")
    yield nodes
    await nodes.close()


@asynccontextmanager
async def writing(nodes: Nodes, root: Path, **more: Any) -> AsyncIterator[Writer]:
    """A writer with a new log below `root`; it goes on when its log breaks."""
    log = Log(root, "dq-server-0", [bucket.name for bucket in nodes.buckets])
    writer = Writer(log, Store(), nodes.buckets, **{**USUAL, **more})
    writer.start()
    yield writer
    await writer.close()


@contextmanager
def hasty(writer: Writer) -> Iterator[None]:
    """Within the block producers are soon told that a node is away. Outside of it no test fails
    because the machine is slow."""
    writer._answer_within_ms = SOON_MS
    yield
    writer._answer_within_ms = PATIENT_MS


@asynccontextmanager
async def restoring(nodes: Nodes, root: Path) -> AsyncIterator[None]:
    """Buckets that are not there are begun anew, as dq-redis-checker does it; there is no SQL."""
    database = Database(f"sqlite+aiosqlite:///{root}/not a folder/dq.db")
    await database.open()
    restorer = Restorer(nodes, Store(), JournalStore(database, digest_of), root)

    async def watch() -> None:
        while True:
            for bucket in nodes.buckets:
                with suppress(NodeAway, DatabaseAway):
                    await restorer.look_after(bucket)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(watch())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await database.close()


def stored(client: redis.Redis, bucket: Bucket) -> dict[str, StoredJob]:
    """The unfinished jobs of a bucket by their ids."""
    found = client.hgetall(bucket.keys[JOBS]).values()
    return {job.id: job for job in map(records.unpack_job, found)}


def applied(client: redis.Redis, bucket: Bucket, writer: bytes) -> int:
    """Up to which sequence of a writer's a bucket has its records."""
    return int(client.hget(bucket.keys[META], b"h" + writer) or 0)


def accepted(folder: Path, bucket: Bucket) -> dict[str, tuple[int, int]]:
    """The pushes in a log that were not refused: id -> stamp and sequence of the last."""
    pushed: dict[int, tuple[str, int]] = {}
    for frame in read_frames(folder):
        fields = records.unpack(frame.payload)
        if frame.bucket == NOTE and fields[2] == bucket.index:
            pushed.pop(fields[3], None)
        elif frame.bucket == bucket.index and fields[0] == Op.PUSH:
            pushed[frame.seq] = (fields[7].decode(), fields[1])
    return {id_: (stamp, seq) for seq, (id_, stamp) in sorted(pushed.items())}


def is_all_there(client: redis.Redis, writer: Writer, buckets: Iterable[Bucket]) -> bool:
    """Whether the buckets have every record of the writer's log."""
    return all(
        applied(client, bucket, writer.name) == writer.last_seq(bucket) for bucket in buckets
    )


def check_as_logged(client: redis.Redis, writer: Writer, buckets: Iterable[Bucket]) -> None:
    """Each bucket holds just the jobs of the writer's log, in their last version, each in one
    place."""
    for bucket in buckets:
        found = {
            id_: (job.version.stamp, job.version.seq)
            for id_, job in stored(client, bucket).items()
            if job.version.writer == writer.name
        }
        assert found == accepted(writer.log.folder, bucket)
        due = client.zrange(bucket.keys[BUCKET_KEYS.index("due")], 0, -1)
        assert len(due) == client.hlen(bucket.keys[JOBS])


async def submit_all(
    writer: Writer, bucket: Bucket, ids: Iterable[object], how: int = REJECT, **more: Any
) -> list[Code]:
    """Pushes that arrive together, and what became of each."""
    return list(
        await asyncio.gather(
            *(writer.submit(bucket, a_push(writer, id_, how, **more)) for id_ in ids)
        )
    )
