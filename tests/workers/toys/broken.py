"""Can't start."""

from __future__ import annotations

from dq.workers.base import Context


async def run(ctx: Context) -> None:
    raise RuntimeError("the coffee is cold")
