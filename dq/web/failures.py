"""Whatever a page raised, as a page with words.

An exception's own text is shown only where it was written for people; what nobody foresaw is
logged whole, and the page says where to look.
"""

from __future__ import annotations

import logging

from aiohttp import web

from dq.core import errors
from dq.core.errors import DqError
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.texts import Say, Words
from dq.web.visitor import VISITOR

_log = logging.getLogger("dq.web")

_STATUS: dict[type[DqError], int] = {
    errors.Invalid: 422,
    errors.TopicUnknown: 404,
    errors.TopicOffline: 409,
    errors.DuplicateJob: 409,
    errors.NodeAway: 503,
    errors.Overloaded: 503,
    errors.DiskFull: 503,
    errors.NodeFull: 503,
    errors.DatabaseAway: 503,
}

_TITLES = {
    401: Say("Log in first"),
    403: Say("Not allowed"),
    404: Say("Nothing is here"),
    405: Say("This can't be done here"),
    409: Say("Not now"),
    413: Say("Too large"),
    422: Say("This can't be accepted"),
    429: Say("Too often"),
    503: Say("Not available just now"),
}

_HTTP = {
    404: Say("No page has this address. Perhaps what it was about is gone."),
    405: Say("The address exists, but takes no such request."),
    413: Say("The form is larger than dq takes."),
}


class FailurePage:
    """Renders error.html."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def show(self, request: web.Request, error: Exception) -> web.StreamResponse:
        """The answer to a request that raised `error`; a redirect is one already."""
        if isinstance(error, web.HTTPException) and error.status < 400:
            return error
        status, what, retry_after_s = _describe(request, error)
        title = _TITLES.get(status, Say("Something went wrong"))
        response = await self._pages.show(
            request, "error.html", tab="", status=status, title=title, what=what
        )
        if retry_after_s:
            response.headers["Retry-After"] = str(retry_after_s)
        return response


def _describe(request: web.Request, error: Exception) -> tuple[int, Say | str, int]:
    if isinstance(error, Refusal):
        return error.status, error.say, error.retry_after_s
    if isinstance(error, web.HTTPException):
        return error.status, _HTTP.get(error.status, Say("dq can't read this request.")), 0
    kind = next((_STATUS[base] for base in type(error).__mro__ if base in _STATUS), None)
    if isinstance(error, errors.Invalid):
        return 422, _faults(error, request[VISITOR].words), 0
    if kind is not None:
        return kind, str(error), 5 if kind == 503 else 0
    what = f"{request.method} {request.rel_url.raw_path[:200]!r}"
    _log.error("unexpected error in %s", what, exc_info=error)
    return 500, Say("dq's error log has the details."), 0


def _faults(error: errors.Invalid, words: Words) -> str:
    """What is wrong with each field, as the reader reads it."""
    said = ((fault.field, words.say(fault.message)) for fault in error.errors)
    return "; ".join(f"{field}: {what}" if field else what for field, what in said)
