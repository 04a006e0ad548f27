"""How fast the journal takes rows on SQLite, with and without counting them.

    python -m tests.bench.shipping [batches]

A batch is 1,000 pushes and 1,000 outcomes of 20 topics, as a shipper under load makes them. Both
are measured in turns, as the file grows; the figure is rows a second, the best and the median.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from dq.db import counts
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.db.rows import State
from tests.sql.journal import Writer, digest_of

EACH = 1_000
STEP_US = 200


async def _ship(writer: Writer, turn: int) -> float:
    """Seconds that one batch took."""
    for number in range(EACH):
        at = (turn * EACH + number) * STEP_US
        topic = f"topic{number % 20}"
        push = writer.push(f"job-{turn}-{number}", at, topic=topic, body=b'{"order": 123456}' * 8)
        writer.change(push, at + 50, State.DONE, attempt=1, ms=3, url="http://h/p", late_ms=2)
    began = time.perf_counter()
    await writer.ship()
    return time.perf_counter() - began


async def _measure(batches: int, folder: Path) -> dict[str, list[float]]:
    url = f"sqlite+aiosqlite:///{folder}/dq.db"
    migrate(url)
    database = Database(url)
    await database.open()
    writer = Writer(JournalStore(database, digest_of), "bench")
    counting = counts.add_counts

    async def not_counting(*_: object) -> None:
        return

    taken: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(batches):
        kind = ("without", "with")[turn % 2]
        counts.add_counts = not_counting if kind == "without" else counting
        taken[kind].append(await _ship(writer, turn))
    await database.close()
    return taken


def main() -> None:
    """Print both."""
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        taken = asyncio.run(_measure(batches, Path(folder)))
    for kind, seconds in taken.items():
        best, middle = (2 * EACH / number for number in (min(seconds), statistics.median(seconds)))
        print(f"{kind:8} counts: {best:,.0f} rows/s at best, {middle:,.0f} in the median")


if __name__ == "__main__":
    main()
