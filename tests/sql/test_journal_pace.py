"""When SQL gets what stands in a log: as soon as it is there, at whatever pace the files go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dq.db.journal_store import JournalStore
from dq.journal.files import DayFiles
from dq.journal.shipper import Shipper
from dq.log.frames import encode_frame
from dq.log.log import Log
from dq.queue import records

BUCKET = "redis-0/0"


async def test_several_pieces_told_while_sql_was_slow_are_shipped_at_once(
    tmp_path: Path, store: JournalStore
) -> None:
    log = Log(tmp_path / "log", "dq-server-0", [BUCKET])

    async def nothing(*_: object) -> None:
        """The schema is there, and no writer leaves."""

    files = DayFiles(tmp_path / "logs", tmp_path / "told.json")
    shipper = Shipper(tmp_path / "log", store, files, [BUCKET], nothing)
    shipper.tell()
    await shipper.ship()
    end = 0
    for seq in range(1, 5):
        end = write(log, seq)
        assert shipper.tell()
    shipping = asyncio.create_task(shipper.run_sql(nothing))
    try:
        async with asyncio.timeout(10):
            while await store.cursor(log.writer) < end:
                await asyncio.sleep(0.01)
    finally:
        shipping.cancel()
        await asyncio.wait({shipping})
    assert len(await store.unfinished(b"", 10)) == 4


def write(log: Log, seq: int) -> int:
    """A push that has been applied; where its record ends."""
    record = records.push(
        1_790_000_000_000_000 + seq,
        topic="t",
        id_=str(seq),
        body=b"{}",
        due_ms=1_790_000_000_000,
        absolute=True,
        priority=1,
        timeout_ms=0,
        key="",
        on_duplicate=0,
    )
    end = log.append(encode_frame(0, seq, records.pack(record)))
    log.high[0] = seq
    return end
