"""The admin's pages. So far one that says so, and a sign of life."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>dq</title>
<meta name="viewport" content="width=device-width"></head>
<body><h1>dq</h1><p>The web admin is coming. Until then the command line does everything:
<code>dq --help</code>.</p></body></html>
"""


def make_app() -> web.Application:
    """An application for one event loop."""
    app = web.Application()
    app.add_routes([web.get("/", _front), web.get("/healthz", _healthz)])
    return app


@asynccontextmanager
async def serving(app: web.Application, listener: socket.socket) -> AsyncIterator[None]:
    """Serve `app` on a socket that listens already, as long as the block lasts."""
    runner = web.AppRunner(app, handle_signals=False, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()


async def _front(_: web.Request) -> web.Response:
    headers = {"Content-Security-Policy": "default-src 'none'"}
    return web.Response(text=_PAGE, content_type="text/html", headers=headers)


async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
