"""Works until told to stop, and notes when it leaves."""

from __future__ import annotations

from dq.workers.base import Context
from tests.workers.toys.notes import note


async def run(ctx: Context) -> None:
    ctx.ready()
    await ctx.stopping.wait()
    note(ctx, f"{ctx.name} left")
