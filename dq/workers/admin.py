"""dq-admin: the web admin."""

from __future__ import annotations

from aiohttp import web

from dq.web.app import make_app
from dq.workers.base import Context


async def run(ctx: Context) -> None:
    """The child's work."""
    runner = web.AppRunner(make_app(), handle_signals=False, access_log=None)
    await runner.setup()
    await web.SockSite(runner, ctx.sockets["admin"]).start()
    ctx.ready()
    await ctx.stopping.wait()
    await runner.cleanup()
