"""What dq-journal's own work costs: logs read, lines for people, rows in SQLite.

    python -m tests.bench.shipping [jobs] [each] [--steady]

Makes the logs of a server and of a consumer in a temporary folder, `each` records at a time, and
has them told and shipped after every piece, as dq-journal does under a flow. A job is pushed and
delivered: at first all are pushed, then all are delivered; with --steady each piece holds pushes
and the ends of the same jobs. Prints milliseconds of CPU for 1,000 jobs, and how it divides.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dq.db import counts, shipping
from dq.db.blocking import BlockingSqlite
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.journal.files import DayFiles
from dq.journal.shipper import Shipper
from dq.journal.tail import Tail
from dq.log.frames import encode_frame
from dq.log.log import Log
from dq.queue import records
from dq.queue.records import StoredJob, Verdict, Version
from dq.workers.journal import GC_EACH

BUCKETS = [f"redis-0/{number}" for number in range(4)]
START_US = 1_790_000_000_000_000
STEP_US = 150


class Pen:
    """One writer's log, whose records count as applied at once."""

    def __init__(self, root: Path, process: str) -> None:
        self._log = Log(root, process, BUCKETS)
        self.writer = self._log.writer
        self._seqs = [0] * len(BUCKETS)

    def write(self, made: Iterable[tuple[int, list[Any]]]) -> None:
        """Records, each with the bucket that it is for."""
        frames: list[bytes] = []
        for bucket, record in made:
            self._seqs[bucket] += 1
            frames.append(encode_frame(bucket, self._seqs[bucket], records.pack(record)))
        for start in range(0, len(frames), 20):
            self._log.append(b"".join(frames[start : start + 20]))
        for bucket, seq in enumerate(self._seqs):
            self._log.high[bucket] = seq


def _push(number: int) -> tuple[int, list[Any]]:
    stamp = START_US + number * STEP_US
    body = b'{"order":%d,"text":"%s"}' % (number, b"x" * 40)
    record = records.push(
        stamp,
        topic=f"topic{number % 3}",
        id_=f"c0-{number}",
        body=body,
        due_ms=stamp // 1000 + 5_000,
        absolute=True,
        priority=1,
        timeout_ms=0,
        key="",
        on_duplicate=0,
    )
    return number % 4, record


def _settle(number: int, writer: bytes, stamp: int) -> tuple[int, list[Any]]:
    pushed = START_US + number * STEP_US
    job = StoredJob(
        version=Version(pushed, writer, number // 4 + 1),
        due_ms=pushed // 1000 + 5_000,
        retries=0,
        priority=1,
        timeout_ms=0,
        topic=f"topic{number % 3}",
        id=f"c0-{number}",
        key="",
        body=b"",
    )
    story = [1, 200, 3, b"http://127.0.0.1:9000/close", b"", b"ok", b"dq-consumer-0"]
    return number % 4, records.settle(stamp, job, b"t" * 8, Verdict.DONE, 0, story)


class Clocks:
    """CPU seconds of the threads inside of functions, by a name for each."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str, label: str | Callable[..., str]) -> None:
        inner = getattr(owner, name)

        def timed(*args: Any, **more: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*args, **more)
            finally:
                called = label if isinstance(label, str) else label(*args)
                self.taken[called] += time.thread_time() - began

        setattr(owner, name, timed)


def _watch() -> Clocks:
    clocks = Clocks()
    clocks.wrap(Tail, "read", "read the logs")
    clocks.wrap(DayFiles, "tell", "lines for people")
    clocks.wrap(BlockingSqlite, "_transact", "SQL, the whole transaction")
    clocks.wrap(shipping, "find_reused", "  find reused ids")
    clocks.wrap(shipping, "_insert_pushes", "  pushes into messages")
    clocks.wrap(shipping, "_merge_changes", "  changes of messages")
    clocks.wrap(shipping, "_insert_lines", "  transitions")
    clocks.wrap(counts, "add_counts", "  counts")
    return clocks


async def _measure(jobs: int, each: int, steady: bool, folder: Path) -> float:
    url = f"sqlite+aiosqlite:///{folder}/dq.db"
    migrate(url)
    database = Database(url)
    await database.open()
    root = folder / "log"
    server, consumer = Pen(root, "dq-server-0"), Pen(root, "dq-consumer-0")
    files = DayFiles(folder / "logs", folder / "told.json")

    async def nothing(_: bytes) -> None:
        return

    store = JournalStore(database, records.digest_of)
    shipper = Shipper(root, store, files, set(BUCKETS), nothing)
    await shipper.ship()
    taken = 0.0
    for phase in ("both",) if steady else ("push", "settle"):
        for start in range(0, jobs, each):
            numbers = range(start, min(start + each, jobs))
            if phase != "settle":
                server.write(map(_push, numbers))
            if phase != "push":
                late_us = 200_000 if steady else 2 * jobs * STEP_US
                consumer.write(
                    _settle(one, server.writer, START_US + one * STEP_US + late_us)
                    for one in numbers
                )
            began = time.process_time()
            while shipper.tell():
                pass
            while await shipper.ship():
                pass
            taken += time.process_time() - began
    await database.close()
    return taken


def main() -> None:
    """Print the figures."""
    words = [word for word in sys.argv[1:] if word != "--steady"]
    jobs = int(words[0]) if words else 20_000
    each = int(words[1]) if len(words) > 1 else 1_000
    clocks = _watch()
    gc.set_threshold(GC_EACH)
    with tempfile.TemporaryDirectory() as folder:
        steady = "--steady" in sys.argv
        taken = asyncio.run(_measure(jobs, each, steady, Path(folder)))
    print(f"{taken * 1e6 / jobs:6.2f} ms of CPU for 1,000 jobs, {each} at a time")
    for label, seconds in clocks.taken.items():
        print(f"{seconds * 1e6 / jobs:6.2f}   {label}")


if __name__ == "__main__":
    main()
