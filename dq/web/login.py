"""Logging in and out, and how a visitor wants to see the pages.

A wrong password and an unknown name get the same answer after the same time, and growing pauses
(dq.web.pauses). The form's CSRF token hangs on a cookie of its own until there is a session.
"""

from __future__ import annotations

import logging
import math
import secrets

from aiohttp import web

from dq.web.accounts import ROLES, Accounts
from dq.web.deps import Admin
from dq.web.forms import Form, own_path, read_form, redirect, set_cookie
from dq.web.pages import Pages
from dq.web.pauses import Pauses
from dq.web.sessions import LONGEST_MS, Sessions
from dq.web.texts import LANGUAGES, Say
from dq.web.visitor import THEMES, open_to_all, open_to_viewers, visitor_of

_log = logging.getLogger(__name__)

FORM_COOKIE = "dq_form"
LANGUAGE_COOKIE, THEME_COOKIE = "dq_language", "dq_theme"
_YEAR_S = 365 * 86_400
_MOST_NAME_CHARS = 64


class LoginPage:
    """`cookie` is the session cookie's name."""

    def __init__(
        self, admin: Admin, pages: Pages, sessions: Sessions, pauses: Pauses, cookie: str
    ) -> None:
        self._admin = admin
        self._accounts: Accounts = admin.accounts
        self._pages = pages
        self._sessions = sessions
        self._cookie = cookie
        self._pauses = pauses

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/login", self.show),
            web.post("/login", self.log_in),
            web.post("/logout", self.log_out),
            web.post("/preferences", self.prefer),
        ]

    @open_to_all
    async def show(self, request: web.Request) -> web.Response:
        to = own_path(request.query.get("next", "/"))
        if visitor_of(request).user:
            return redirect(request, to)
        return await self._form(request, Form({"next": to}))

    @open_to_all
    async def log_in(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        user, address = form.text("user")[:_MOST_NAME_CHARS], visitor_of(request).address
        now_ms = self._admin.now_ms()
        if wait_ms := self._pauses.wait_ms(user, address, now_ms):
            wait_s = math.ceil(wait_ms / 1000)
            form.fault("password", Say("Too many wrong passwords; try again in {n} s.", n=wait_s))
            response = await self._form(request, form, status=429)
            response.headers["Retry-After"] = str(wait_s)
            return response
        self._pauses.begin(user, address, now_ms)
        if not await self._accounts.check(user, form.raw("password")):
            # What was typed as a name is perhaps a password.
            known = user if user in ROLES else "a name that is none"
            _log.warning("a wrong password from %s for %s", address, known)
            form.fault("password", self._why_not())
            return await self._form(request, form, status=401)
        self._pauses.succeed(user, address, now_ms)
        await self._admin.note(request, "log-in", user, who=user)
        return self._welcome(request, form, user)

    @open_to_viewers
    async def log_out(self, request: web.Request) -> web.Response:
        self._sessions.end(visitor_of(request).token)
        response = redirect(request, "/login")
        response.del_cookie(self._cookie, path="/")
        return response

    @open_to_all
    async def prefer(self, request: web.Request) -> web.Response:
        """Another language or other colours: cookies of this browser, nothing of dq's."""
        form = await read_form(request)
        response = redirect(request, form.text("back"))
        if (language := form.text("language")) in LANGUAGES:
            set_cookie(request, response, LANGUAGE_COOKIE, language, _YEAR_S)
        if (theme := form.text("theme")) in THEMES:
            set_cookie(request, response, THEME_COOKIE, theme, _YEAR_S)
        return response

    def _welcome(self, request: web.Request, form: Form, user: str) -> web.Response:
        token = self._sessions.begin(user, visitor_of(request).address)
        response = redirect(request, form.text("next"))
        set_cookie(request, response, self._cookie, token, LONGEST_MS // 1000)
        return response

    def _why_not(self) -> Say:
        if self._accounts.is_broken:
            return Say(
                "The file admin.json below the data folder can't be read, so nobody can log in. "
                "Remove it and restart dq: it makes a new password and shows it."
            )
        return Say("The name or the password is wrong.")

    async def _form(self, request: web.Request, form: Form, status: int = 200) -> web.Response:
        return await self._pages.show(request, "login.html", tab="", status=status, form=form)


def new_form_secret() -> str:
    """For the cookie that a form's token hangs on before the log-in."""
    return secrets.token_urlsafe(24)
