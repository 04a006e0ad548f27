"""Asks the node it was given for a sign of life."""

from __future__ import annotations

from redis.asyncio import Redis

from dq.workers.base import Context
from tests.workers.toys import steady
from tests.workers.toys.notes import note


async def run(ctx: Context) -> None:
    assert ctx.settings.embedded
    client = Redis.from_url(ctx.settings.embedded_url)
    assert await client.ping()
    await client.aclose()
    note(ctx, "pong")
    await steady.run(ctx)
