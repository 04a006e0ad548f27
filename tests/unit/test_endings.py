"""The end of a process is told by the kernel, once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from dq.journal.endings import Endings
from tests.support import wait_until_async


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@pytest.fixture
def told() -> list[None]:
    return []


@pytest.fixture
def tell(told: list[None]) -> Callable[[], None]:
    return lambda: told.append(None)


async def test_an_end_is_told_once(told: list[None], tell: Callable[[], None]) -> None:
    endings, process = Endings(tell), sleeper()
    endings.watch({process.pid})
    endings.watch({process.pid})
    await asyncio.sleep(0.05)
    assert not told
    process.kill()
    await wait_until_async(lambda: told)
    endings.watch({process.pid})  # not reaped yet, and perhaps its lock is held still
    await asyncio.sleep(0.05)
    assert len(told) == 1
    process.communicate()
    endings.watch({process.pid})
    endings.close()


async def test_who_is_not_watched_any_more_ends_unnoticed(
    told: list[None], tell: Callable[[], None]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    endings, process = Endings(tell), sleeper()
    endings.watch({process.pid})
    endings.watch(set())
    process.communicate()
    await asyncio.sleep(0.05)
    assert not told
    assert len(os.listdir("/proc/self/fd")) == before
