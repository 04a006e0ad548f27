"""The page about dead jobs: looking, redriving, throwing away."""

from __future__ import annotations

from aiohttp import web

from dq.web.deps import Admin
from dq.web.pages import Pages
from dq.web.texts import Say


class DeadPage:
    """Handlers of /dead."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/dead", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        return await self._pages.show(
            request, "not_yet.html", tab="dead", title=Say("Dead"), command="dq get --help"
        )
