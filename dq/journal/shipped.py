"""How far SQL is behind the logs of this host, and waiting until it is not.

Who asks a bucket first, then waits here, and then asks SQL, never sees a job as unfinished that
had ended before the bucket was asked: its end was in a log by then, and now it is in SQL.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from dq.core import clock
from dq.db.journal_store import JournalStore
from dq.journal.asked import ask_to_ship
from dq.log.frames import NOTE
from dq.log.log import end_of_records, read_frames
from dq.queue.records import unpack

LOOK_S = 0.02


async def wait_shipped(root: Path, store: JournalStore, within_ms: float) -> dict[Path, int]:
    """Wait until SQL has what the logs below `root` hold now; the logs that it still lacks a part
    of after `within_ms`, and from which position on. Raises DatabaseAway."""
    wanted = await asyncio.to_thread(_ends, root)
    deadline_ms = clock.mono_ms() + within_ms
    while True:
        cursors = await store.open_cursors()
        places = {folder: cursors.get(bytes.fromhex(folder.name), 0) for folder in wanted}
        behind = {folder: pos for folder, pos in places.items() if pos < wanted[folder]}
        if not behind or clock.mono_ms() > deadline_ms:
            return behind
        ask_to_ship(root)
        await asyncio.sleep(LOOK_S)


def touched_since(behind: dict[Path, int]) -> set[bytes]:
    """The digests of all jobs that records beyond these positions speak of."""
    found: set[bytes] = set()
    for folder, pos in behind.items():
        for frame in read_frames(folder, pos):
            if frame.bucket != NOTE and len(fields := unpack(frame.payload)) > 2:
                found.add(fields[2])
    return found


def _ends(root: Path) -> dict[Path, int]:
    """Where the last record of each log ends now, as far as there is one."""
    ends: dict[Path, int] = {}
    for folder in root.iterdir() if root.is_dir() else ():
        try:
            bytes.fromhex(folder.name)
            ends[folder] = end_of_records(folder)
        except (FileNotFoundError, IndexError, ValueError):
            continue  # it is being made or removed just now, or is no log
    return ends
