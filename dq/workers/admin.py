"""dq-admin: serves the web admin."""

from __future__ import annotations

from dq.web.app import make_app, serving
from dq.workers.base import Context


async def run(ctx: Context) -> None:
    """The child's work."""
    async with serving(make_app(), ctx.sockets["admin"]):
        ctx.ready()
        await ctx.stopping.wait()
