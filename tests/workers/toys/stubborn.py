"""Leaves only when there is a file `leave` in the data folder."""

from __future__ import annotations

import asyncio

from dq.workers.base import Context


async def run(ctx: Context) -> None:
    ctx.ready()
    while not (ctx.settings.data_dir / "leave").exists():
        await asyncio.sleep(0.01)
