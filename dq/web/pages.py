"""From a template and values to a page.

Everything that is put into a template is escaped, in every template, and a name that a template
uses and nobody gave is an error. What every page needs beside its own values, the visitor, the
language, the tabs with their badges, is added here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

import dq
from dq.core.clock import rfc3339
from dq.web import charts
from dq.web.badges import Badge, Badges
from dq.web.deps import Admin
from dq.web.forms import SAID_COOKIE, read_said
from dq.web.static_files import StaticFiles
from dq.web.texts import LANGUAGES, Catalogues, Say, Words, exact_time
from dq.web.visitor import VISITOR, Visitor

TABS: tuple[tuple[str, str, Say], ...] = (
    ("overview", "/", Say("Overview")),
    ("topics", "/topics", Say("Topics")),
    ("jobs", "/jobs", Say("Jobs")),
    ("dead", "/dead", Say("Dead")),
    ("nodes", "/nodes", Say("Nodes")),
    ("alerts", "/alerts", Say("Alerts")),
    ("replay", "/replay", Say("Replay")),
    ("access", "/access", Say("Access")),
)


class Pages:
    """Renders the templates of one admin."""

    def __init__(self, admin: Admin, badges: Badges, static: StaticFiles) -> None:
        self._admin = admin
        self._badges = badges
        self.catalogues = Catalogues(templates_folder() / "locale")
        self._environment = make_environment(templates_folder())
        self._environment.globals.update(
            static=static.url, charts=charts, with_query=with_query, version=dq.__version__
        )

    async def show(
        self, request: web.Request, template: str, *, tab: str, status: int = 200, **values: Any
    ) -> web.Response:
        """A whole page. `tab` is the name of the page's tab, "" outside of them."""
        visitor = request[VISITOR]
        badges: Mapping[str, Badge] = await self._badges.get() if visitor.user else {}
        said = read_said(request)
        text = self.fragment(
            visitor,
            template,
            tab=tab,
            tabs=TABS,
            badges=badges,
            said=said,
            here=_address(request, tab),
            languages=LANGUAGES,
            **values,
        )
        response = web.Response(text=text, status=status, content_type="text/html")
        if said is not None:
            response.del_cookie(SAID_COOKIE, path="/")
        return response

    def fragment(self, visitor: Visitor, template: str, **values: Any) -> str:
        """A template by itself, as its visitor reads it: without tabs and badges."""
        words, now_ms = visitor.words, self._admin.now_ms()
        return self._environment.get_template(template).render(
            visitor=visitor,
            t=words.t,
            tn=words.tn,
            say=words.say,
            words=words,
            now_ms=now_ms,
            when=lambda at_ms: _when(words, at_ms, now_ms),
            **values,
        )


def make_environment(folder: Path) -> Environment:
    """How every template is read."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def templates_folder() -> Path:
    """templates/: beside the package in a checkout, inside it when installed."""
    package = Path(dq.__file__).parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def with_query(path: str, **query: object) -> str:
    """A path with a query of what is not None and not empty: each state of a list is an address."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _address(request: web.Request, tab: str) -> str:
    """Where to come back to: after a form was refused, its page and not what took the form."""
    if request.method == "GET":
        return str(request.rel_url)
    return next((path for name, path, _ in TABS if name == tab), "/")


def _when(words: Words, at_ms: int | None, now_ms: int) -> Markup:
    """An instant as seen from now; the exact one on hovering, and for machines."""
    if at_ms is None:
        return Markup("–")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        rfc3339(at_ms), exact_time(at_ms), escape(words.relative(at_ms, now_ms))
    )
