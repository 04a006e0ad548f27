"""A thread that brings a log to the disk when it is told to, and tells the loop when it is there.

A ThreadPoolExecutor does the same, but its futures and locks cost the loop's thread more (58 us a
sync against 20, measured once on a busy machine), and a sync is made for every few pushes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Syncing:
    """Calls `sync` in its thread, once for each time it is asked, one after the other."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._wanted: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dq-sync", daemon=True)
        self._thread.start()

    def begin(self) -> asyncio.Future[None]:
        """One sync of all that was written until now; raises what `sync` raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted.put(done)
        return done

    def close(self) -> None:
        """Wait for what was asked for, then end the thread."""
        self._wanted.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (done := self._wanted.get()) is not None:
            error: Exception | None = None
            try:
                self._sync()
            except Exception as failure:
                error = failure
            done.get_loop().call_soon_threadsafe(_tell, done, error)


def _tell(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
