"""The page about replay: what was accepted in a span of time and never finished."""

from __future__ import annotations

from aiohttp import web

from dq.web.deps import Admin
from dq.web.pages import Pages
from dq.web.texts import Say


class ReplayPage:
    """Handlers of /replay."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/replay", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        return await self._pages.show(
            request, "not_yet.html", tab="replay", title=Say("Replay"), command="dq replay --help"
        )
