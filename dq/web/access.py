"""Who may come in: passwords, the API's tokens, and the log of who changed what."""

from __future__ import annotations

import math
from typing import Any

from aiohttp import web

from dq.core.errors import DatabaseAway
from dq.web.accounts import ADMIN, ROLES, VIEWER, password_fault
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.pages import Pages
from dq.web.pauses import Pauses
from dq.web.refusals import Refusal
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import visitor_of

PAGE = 50
MOST_NAME_CHARS = 100


class AccessPage:
    """Handlers of /access."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions, pauses: Pauses) -> None:
        self._admin = admin
        self._accounts = admin.accounts
        self._pages = pages
        self._sessions = sessions
        self._pauses = pauses

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/access", self.show),
            web.post("/access/password", self.change_password),
            web.post("/access/viewer", self.close_viewer),
            web.post("/access/tokens", self.make_token),
            web.post("/access/tokens/{no:[0-9]+}/revoke", self.revoke_token),
        ]

    async def show(self, request: web.Request) -> web.Response:
        return await self._page(request, Form({}))

    async def change_password(self, request: web.Request) -> web.Response:
        """Of admin or of viewer; the one who asks must know admin's."""
        form = await read_form(request)
        user = form.text("user")
        if user not in ROLES:
            raise web.HTTPNotFound
        await self._check(request, form)
        if form.faults:
            return await self._page(request, form, status=422)
        had_one = self._accounts.stamp(user) is not None
        await self._accounts.put(user, form.raw("password"))
        await self._admin.note(
            request, "password", user, before="set" if had_one else None, after="set anew"
        )
        said = Said("The password of {user} is changed; its sessions have ended.", {"user": user})
        # admin's own session has just ended with the others: back to the log-in.
        return redirect(request, "/login?next=/access" if user == ADMIN else "/access", said)

    async def close_viewer(self, request: web.Request) -> web.Response:
        """Nobody can log in as viewer any more."""
        if self._accounts.remove(VIEWER):
            await self._admin.note(request, "password", VIEWER, before="set", after=None)
        return redirect(request, "/access", Said("Nobody can log in as viewer any more."))

    async def make_token(self, request: web.Request) -> web.Response:
        """Shown in this answer and never again: it goes into no cookie and no address."""
        form = await read_form(request)
        name, store = form.text("name"), self._admin.store
        if not 0 < len(name) <= MOST_NAME_CHARS:
            form.fault("name", Say("must have 1 to {n} characters", n=MOST_NAME_CHARS))
        elif any(one.name == name and one.revoked_ms is None for one in await store.tokens()):
            form.fault("name", Say("is the name of another token that opens"))
        if form.faults:
            return await self._page(request, form, status=422)
        made = await store.make_token(name, visitor_of(request).user)
        await self._admin.tokens.sync()
        await self._admin.note(request, "token.make", name)
        return await self._page(request, Form({}), made=made, made_name=name)

    async def revoke_token(self, request: web.Request) -> web.Response:
        """It opens nothing any more."""
        token = await self._admin.store.revoke_token(int(request.match_info["no"][:18]))
        if token is None:
            raise Refusal(409, Say("This token is unknown, or was revoked before."))
        await self._admin.tokens.sync()
        await self._admin.note(request, "token.revoke", token.name, before=token.hint + "…")
        said = Said("The token {name} opens nothing any more.", {"name": token.name})
        return redirect(request, "/access", said)

    async def _check(self, request: web.Request, form: Form) -> None:
        if fault := password_fault(form.raw("password")):
            form.fault("password", fault)
        if form.raw("password") != form.raw("again"):
            form.fault("again", Say("is not the same"))
        if not form.faults:
            await self._check_current(form, visitor_of(request).address)

    async def _check_current(self, form: Form, address: str) -> None:
        """A session that was left open is no way to guess the password either."""
        now_ms = self._admin.now_ms()
        if wait_ms := self._pauses.wait_ms(ADMIN, address, now_ms):
            wait_s = math.ceil(wait_ms / 1000)
            form.fault("current", Say("Too many wrong passwords; try again in {n} s.", n=wait_s))
            return
        self._pauses.begin(ADMIN, address, now_ms)
        if await self._accounts.check(ADMIN, form.raw("current")):
            self._pauses.succeed(ADMIN, address, now_ms)
        else:
            form.fault("current", Say("is wrong"))

    async def _page(
        self,
        request: web.Request,
        form: Form,
        status: int = 200,
        *,
        made: str = "",
        made_name: str = "",
    ) -> web.Response:
        return await self._pages.show(
            request,
            "access.html",
            tab="access",
            status=status,
            form=form,
            accounts=self._list_accounts(),
            given_tokens=len(self._admin.settings.api_tokens),
            made=made,
            made_name=made_name,
            **await self._lists(request),
        )

    def _list_accounts(self) -> list[dict[str, Any]]:
        return [
            {
                "user": user,
                "is_open": self._accounts.stamp(user) is not None,
                "sessions": self._sessions.count(user),
            }
            for user in ROLES
        ]

    async def _lists(self, request: web.Request) -> dict[str, Any]:
        cursor = request.query.get("cursor") or None
        target = request.query.get("target") or None
        wanted = {"cursor": cursor, "target": target}
        try:
            page = await self._admin.store.changes(limit=PAGE, cursor=cursor, target=target)
            tokens = await self._admin.store.tokens() if visitor_of(request).may_change else []
        except DatabaseAway as error:
            return {"page": None, "tokens": None, "away": error.detail, "wanted": wanted}
        return {"page": page, "tokens": tokens, "away": "", "wanted": wanted}
