"""The page about jobs: searching, looking at one, cancelling, moving, pushing."""

from __future__ import annotations

from aiohttp import web

from dq.web.deps import Admin
from dq.web.pages import Pages
from dq.web.texts import Say


class JobsPage:
    """Handlers of /jobs."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/jobs", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        return await self._pages.show(
            request, "not_yet.html", tab="jobs", title=Say("Jobs"), command="dq get --help"
        )
