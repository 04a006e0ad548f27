"""An asyncio server of the tests, run in a thread beside a test that has no loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_background(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter `server` in a loop of its own, leave it at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    finally:
        end = server.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(end, loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
