"""The web admin as one aiohttp application: its pages, and the one door before them.

The door knows who asks before any page does. Nothing is open unless it says so: a page wants a
log-in, a form the role admin, and every form its CSRF token. Whatever a page raises becomes a page
with words, and every answer gets the headers that keep foreign scripts out.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

from dq.web import access, alerts, dead, jobs, nodes, overview, replay, topics
from dq.web.badges import Badges
from dq.web.bulk import Bulk
from dq.web.deps import Admin
from dq.web.failures import FailurePage
from dq.web.forms import set_cookie
from dq.web.guard import Guard
from dq.web.headers import add_headers
from dq.web.login import (
    FORM_COOKIE,
    LANGUAGE_COOKIE,
    THEME_COOKIE,
    LoginPage,
    new_form_secret,
)
from dq.web.pages import Pages
from dq.web.pauses import Pauses
from dq.web.refusals import Refusal
from dq.web.sessions import Sessions, is_csrf_token
from dq.web.static_files import StaticFiles
from dq.web.texts import Say
from dq.web.visitor import THEMES, VISITOR, Visitor, open_to_all, opened_to

_ROOM_BYTES = 4 * 1024 * 1024
"""What a form may have beyond a job's body, whose characters may be escaped threefold."""


def make_app(admin: Admin) -> web.Application:
    """An application for one event loop."""
    badges, static = Badges(admin), StaticFiles()
    pages = Pages(admin, badges, static)
    sessions = Sessions(admin.settings.data_dir, admin.accounts.stamp, admin.now_ms)
    pauses = Pauses()
    door = Door(admin, pages, sessions)

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await door.answer(request, handler)

    app = web.Application(
        middlewares=[answer], client_max_size=3 * admin.settings.max_body + _ROOM_BYTES
    )
    app.on_response_prepare.append(add_headers)
    bulk = Bulk(admin, pages, sessions)
    jobbing = jobs.JobsPage(admin, pages, sessions, bulk)
    front = overview.OverviewPage(admin, pages, sessions)
    replaying = replay.ReplayPage(admin, pages, sessions)
    noding = nodes.NodesPage(admin, pages, sessions)
    parts = (
        static,
        LoginPage(admin, pages, sessions, pauses, door.cookie),
        front,
        topics.TopicsPage(admin, pages),
        jobbing,
        dead.DeadPage(admin, pages, bulk),
        bulk,
        noding,
        alerts.AlertsPage(admin, pages, front.problems),
        replaying,
        access.AccessPage(admin, pages, sessions, pauses),
    )
    for part in parts:
        app.add_routes(part.routes())
    app.add_routes([web.get("/healthz", _healthz)])
    app.on_shutdown.append(front.stop)
    app.on_shutdown.append(replaying.end)
    app.on_shutdown.append(noding.end)
    app.on_shutdown.append(bulk.stop)
    app.on_shutdown.append(jobbing.stop)

    async def stop_looking(_: web.Application) -> None:
        await badges.stop()

    app.on_cleanup.append(stop_looking)
    return app


@asynccontextmanager
async def serving(app: web.Application, listener: socket.socket) -> AsyncIterator[None]:
    """Serve `app` on a socket that listens already, as long as the block lasts."""
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()


class Door:
    """Lets requests in, or says why not. Its session cookie is named after the admin's port: two
    dq on one machine must not log each other out, as cookies know no ports."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions) -> None:
        self.cookie = f"dq_session_{admin.settings.admin_port}"
        self._sessions = sessions
        self._catalogues = pages.catalogues
        self._guard = Guard([admin.settings.admin_host])
        self._failures = FailurePage(pages)

    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer to a request, whatever becomes of it."""
        visitor = request[VISITOR] = self._meet(request)
        try:
            self._guard.check_host(request)
            response = await self._check(request, visitor) or await handler(request)
        except Exception as error:
            response = await self._failures.show(request, error)
        is_page = response.content_type == "text/html"
        if is_page and not visitor.user and not request.cookies.get(FORM_COOKIE):
            set_cookie(request, response, FORM_COOKIE, visitor.token)
        return response

    def _meet(self, request: web.Request) -> Visitor:
        cookies = request.cookies
        words = self._catalogues.choose(
            cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("Accept-Language", "")
        )
        theme = cookies.get(THEME_COOKIE, "")
        token = cookies.get(self.cookie, "")
        session = self._sessions.find(token) if token else None
        if session is None:
            token = cookies.get(FORM_COOKIE, "") or new_form_secret()
        return Visitor(
            user="" if session is None else session.user,
            address=request.remote or "",
            token=token,
            words=words,
            theme=theme if theme in THEMES else THEMES[0],
        )

    async def _check(self, request: web.Request, visitor: Visitor) -> web.Response | None:
        """None lets the request in; raises Refusal."""
        opened = opened_to(request)
        is_form = request.method not in ("GET", "HEAD", "OPTIONS")
        if is_form:
            self._guard.check_origin(request)
        if not visitor.user and opened != "all":
            return _ask_to_log_in(request, is_form)
        if is_form:
            if not visitor.may_change and not opened:
                raise Refusal(403, Say("You may look at everything here, but change nothing."))
            await _check_csrf(request, visitor)
        return None


async def _check_csrf(request: web.Request, visitor: Visitor) -> None:
    given = request.headers.get("X-CSRF-Token") or (await request.post()).get("csrf", "")
    if not isinstance(given, str) or not is_csrf_token(visitor.token, given):
        raise Refusal(
            403,
            Say(
                "The form was not made for this session, so it was not carried out. "
                "Go back, load the page again, and send it once more."
            ),
        )


def _ask_to_log_in(request: web.Request, is_form: bool) -> web.Response:
    is_page = "text/event-stream" not in request.headers.get("Accept", "")
    if is_form or not is_page:
        raise Refusal(401, Say("You are not logged in, or your session has ended."))
    where = str(request.rel_url)
    to = (
        "/login"
        if where == "/"
        else str(request.rel_url.with_path("/login").with_query(next=where))
    )
    return web.Response(status=303, headers={"Location": to})


@open_to_all
async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
