"""Who asks, and how they want to see it: found once a request, at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from dq.web.accounts import ADMIN
from dq.web.sessions import csrf_token
from dq.web.texts import Words

THEMES = ("auto", "light", "dark")


@dataclass(frozen=True, slots=True)
class Visitor:
    """`user` is "" before the log-in. `token` stands for the session; without one, for the form
    cookie. Neither ever gets onto a page; `csrf` does."""

    user: str
    address: str
    token: str
    words: Words
    theme: str

    @property
    def may_change(self) -> bool:
        """Whether they may do more than look."""
        return self.user == ADMIN

    @property
    def csrf(self) -> str:
        return csrf_token(self.token) if self.token else ""


VISITOR = web.RequestKey("visitor", Visitor)

H = TypeVar("H", bound=Callable[..., Any])


def visitor_of(request: web.Request) -> Visitor:
    """The one who sent this request."""
    return request[VISITOR]


def open_to_all(handler: H) -> H:
    """Marks a handler that needs no log-in. Forms still carry their CSRF token."""
    handler.__dict__["dq_open_to"] = "all"
    return handler


def open_to_viewers(handler: H) -> H:
    """Marks a form that whoever is logged in may send: it changes nothing but their own view."""
    handler.__dict__["dq_open_to"] = "viewers"
    return handler


def opened_to(request: web.Request) -> str:
    """all, viewers, or "" for what nobody has opened."""
    return str(getattr(request.match_info.handler, "dq_open_to", ""))
