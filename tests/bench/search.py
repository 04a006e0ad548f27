"""How long searching, auditing and forgetting take in a journal of millions of jobs.

    python -m tests.bench.search [MILLIONS]

Fills an SQLite database in a throw-away folder; five millions take some minutes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median
from typing import Any

from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.db.rows import State
from dq.queue.records import digest_of
from tests.bench.rows import fill_jobs

FIRST_US = 1_780_000_000_000_000


def main() -> None:
    count = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory(prefix="dq-bench-") as folder:
        path = Path(folder) / "dq.db"
        migrate(f"sqlite+aiosqlite:///{path}")
        began = time.monotonic()
        fill_jobs(path, count, first_us=FIRST_US)
        size = path.stat().st_size / 1e9
        print(f"{count} jobs filled in {time.monotonic() - began:.0f} s, {size:.1f} GB", flush=True)
        asyncio.run(_measure(path, count))


async def _measure(path: Path, count: int) -> None:
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    store = JournalStore(database, digest_of)
    middle_ms = FIRST_US // 1000 + count // 2
    searches: dict[str, dict[str, Any]] = {
        "newest first": {},
        "of a topic": {"topic": "topic7"},
        "dead ones": {"state": State.DEAD},
        "by key": {"key": "key-4711"},
        "from the middle down": {"to_ms": middle_ms},
        "text that is in one job": {"q": f"job-{count - 30_000}"},
    }
    for name, wanted in searches.items():
        await _time(name, [store.search(limit=50, **wanted) for _ in range(5)])
    names = [(f"topic{n % 20}", f"job-{n}") for n in range(count // 3, count // 3 + 5)]
    await _time("a finished job with history", [store.history(*name) for name in names])
    began, after, seen = time.monotonic(), b"", 0
    while page := await store.unfinished_places(after, 2_000):
        after, seen = page[-1].version, seen + len(page)
    print(f"all {seen} unfinished, as an audit reads them: {time.monotonic() - began:.2f} s")
    end_ms = FIRST_US // 1000 + count * 2
    purges = [store.purge("topic3", State.DONE, end_ms, b"", 2_000) for _ in range(5)]
    await _time("forgetting 2,000", purges)
    await database.close()


async def _time(name: str, calls: list[Awaitable[object]]) -> None:
    spans = []
    for call in calls:
        began = time.monotonic()
        await call
        spans.append((time.monotonic() - began) * 1000)
    print(f"{name:30} first {spans[0]:7.1f} ms, then {median(spans):7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
