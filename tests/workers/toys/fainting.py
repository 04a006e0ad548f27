"""Starts well and dies soon, each time; notes when it starts."""

from __future__ import annotations

from dq.core.clock import mono_ms
from dq.workers.base import Context
from tests.workers.toys.notes import note


async def run(ctx: Context) -> None:
    note(ctx, f"{mono_ms():.0f}")
    ctx.ready()
    raise RuntimeError("fainted")
