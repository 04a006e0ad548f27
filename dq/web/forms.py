"""Reading forms and answering them: after a change comes a redirect, with what was done said on
the next page.

What was done travels in a cookie for half a minute, so that going back or reloading repeats
nothing. A way back is only ever a path of this admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from aiohttp import web

from dq.web.guard import is_https
from dq.web.texts import Say

SAID_COOKIE = "dq_said"
_SAID_S = 30
_MOST_SAID_CHARS = 2_000


class Said(msgspec.Struct, frozen=True):
    """What the last form did. `tone`: good, or bad."""

    text: str
    values: dict[str, str | int] = {}
    tone: str = "good"

    @property
    def say(self) -> Say:
        return Say(self.text, **self.values)


class Form:
    """A form that was sent, and what is wrong with it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self.faults: dict[str, Say | str] = {}

    def text(self, name: str) -> str:
        """A field's text without white space around it; "" when it is missing."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """A field's text as it was typed: a password's."""
        value = self._fields.get(name, "")
        return value.replace("\r\n", "\n") if isinstance(value, str) else ""

    def is_ticked(self, name: str) -> bool:
        return bool(self.raw(name))

    def all(self, name: str) -> list[str]:
        """Every value of a field that may come several times, as ticked rows do."""
        many = getattr(self._fields, "getall", None)
        return [one for one in many(name, []) if isinstance(one, str)] if many else []

    def fault(self, name: str, what: Say | str) -> None:
        """Say what is wrong with a field; the first fault of a field stands."""
        self.faults.setdefault(name, what)


async def read_form(request: web.Request) -> Form:
    """The form of a POST."""
    return Form(await request.post())


def redirect(request: web.Request, to: str, said: Said | None = None) -> web.Response:
    """Answer a form that was carried out: look at `to`, a path of ours, where `said` is told."""
    response = web.Response(status=303, headers={"Location": own_path(to)})
    if said is not None:
        text = quote(msgspec.json.encode(said).decode())
        set_cookie(request, response, SAID_COOKIE, text, _SAID_S)
    return response


def read_said(request: web.Request) -> Said | None:
    """What the form before had to say."""
    text = request.cookies.get(SAID_COOKIE, "")
    if not 0 < len(text) <= _MOST_SAID_CHARS:
        return None
    try:
        said = msgspec.json.decode(unquote(text), type=Said)
        said.text.format(**said.values)
    except (msgspec.DecodeError, LookupError, ValueError, AttributeError):
        return None  # not ours
    return said


def own_path(path: str) -> str:
    """The path if it leads to a page of this admin, else the front page."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_ours and path.isprintable() and "\\" not in path else "/"


def set_cookie(
    request: web.Request,
    response: web.StreamResponse,
    name: str,
    value: str,
    max_age_s: int | None = None,
) -> None:
    """A cookie that scripts can't read and other sites can't have sent with their forms."""
    response.set_cookie(
        name,
        value,
        max_age=max_age_s,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=is_https(request),
    )
