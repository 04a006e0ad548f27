"""The page about topics: making, changing and watching them."""

from __future__ import annotations

from aiohttp import web

from dq.web.deps import Admin
from dq.web.pages import Pages
from dq.web.texts import Say


class TopicsPage:
    """Handlers of /topics."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/topics", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        return await self._pages.show(
            request, "not_yet.html", tab="topics", title=Say("Topics"), command="dq topic --help"
        )
