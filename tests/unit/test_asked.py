"""Who waits for SQL to be up to date wakes the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dq.journal.asked import Asked, ask_to_ship


async def test_who_asks_is_heard(tmp_path: Path) -> None:
    heard = asyncio.Event()
    asked = Asked(tmp_path / "log", heard.set)
    asked.listen()
    asked.listen()
    try:
        for _ in range(2_000):  # more than a socket holds
            ask_to_ship(tmp_path / "log")
        await asyncio.wait_for(heard.wait(), 10)
        heard.clear()
        ask_to_ship(tmp_path / "other")
        await asyncio.sleep(0.01)
        assert not heard.is_set()
        ask_to_ship(tmp_path / "log")
        await asyncio.wait_for(heard.wait(), 10)
    finally:
        asked.close()


async def test_nobody_listens(tmp_path: Path) -> None:
    ask_to_ship(tmp_path)


async def test_the_next_listens_when_the_last_has_gone(tmp_path: Path) -> None:
    heard = asyncio.Event()
    last, following = Asked(tmp_path, lambda: None), Asked(tmp_path, heard.set)
    last.listen()
    following.listen()
    last.close()
    following.listen()
    ask_to_ship(tmp_path)
    try:
        await asyncio.wait_for(heard.wait(), 10)
    finally:
        following.close()
