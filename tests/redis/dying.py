"""Processes of this host that die with records in their log and jobs in their hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dq.core import clock
from dq.journal.heir import BURIED
from dq.log.frames import encode_frame
from dq.log.log import Log, segments
from dq.queue import records
from dq.queue.nodes import Bucket, Nodes
from dq.queue.records import Code, Verdict
from dq.queue.store import Store
from dq.queue.writer import Writer
from tests.forked import Forked
from tests.redis.writing import DUE_MS, submit_all

FAR_MS = DUE_MS + 3_600_000


class Process:
    """A process with a log, forked off, that has appended records of which nobody was told."""

    def __init__(self, root: Path, nodes: Nodes, name: str = "dq-server-0") -> None:
        names = [bucket.name for bucket in nodes.buckets]

        def begin() -> bytes:
            return Log(root, name, names).folder.name.encode()

        self._child = Forked(begin)
        self.folder = root / self._child.said.decode()
        self.writer = bytes.fromhex(self.folder.name)
        self._last: dict[int, int] = {}
        self._stamp = clock.now_us()

    def append(self, bucket: Bucket, record: list[Any]) -> int:
        """As the process would have done it just before it died; the sequence."""
        seq = self._last[bucket.index] = self._last.get(bucket.index, 0) + 1
        self.append_bytes(encode_frame(bucket.index, seq, records.pack(record)))
        return seq

    def append_bytes(self, data: bytes) -> None:
        with segments(self.folder)[-1][1].open("ab") as file:
            file.write(data)

    def next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def kill(self) -> None:
        self._child.kill()

    @property
    def is_buried(self) -> bool:
        return (self.folder / BURIED).exists()


async def lease(bucket: Bucket, process: Process, want: int = 10) -> dict[str, Any]:
    """Jobs that came due long ago go into the hand of a process: id -> token and job."""
    leased = await Store().lease(bucket, process.writer, 1, want)
    assert leased.state == "OK"
    return {job.id: (token, job) for token, job in leased.jobs}


async def state_of(bucket: Bucket, id_: str) -> str:
    found = await Store().find(bucket, "t", id_)
    return "gone" if found is None else found[1]


async def push_due(writer: Writer, bucket: Bucket, *ids: str) -> None:
    codes = await submit_all(writer, bucket, ids, due_ms=clock.now_ms() - 1_000)
    assert set(codes) == {Code.CREATED}


def settle_record(process: Process, held: Any, verdict: Verdict, due_ms: int = 0) -> list[Any]:
    token, job = held
    return records.settle(process.next_stamp(), job, token, verdict, due_ms, [])
