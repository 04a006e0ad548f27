"""What several tests share: waiting for something to become true, without guessing how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """Call `probe` until it answers something true; fail with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := probe():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or probe}")
        time.sleep(0.01)


async def wait_until_async(probe: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """The same inside an event loop; `probe` itself is a plain function."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := probe():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or probe}")
        await asyncio.sleep(0.01)
