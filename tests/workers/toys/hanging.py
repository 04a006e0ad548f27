"""Blocks its event loop as soon as there is a file `hang` in the data folder."""

from __future__ import annotations

import asyncio
import time

from dq.workers.base import Context


async def run(ctx: Context) -> None:
    ctx.ready()
    while not ctx.stopping.is_set():
        if (ctx.settings.data_dir / "hang").exists():
            sleep_for_ever()
        await asyncio.sleep(0.01)


def sleep_for_ever() -> None:
    while True:
        time.sleep(1)
