"""Searching for jobs: the query of GET /v1/jobs -> JobSearch -> a page.

The journal finds; but it knows the unfinished only as `delayed`, so which of them are ready or
running is asked of their nodes, and a node that is away just leaves the answer less exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from dq.api.deps import Api, JobLine, JobSearch
from dq.api.fields import MAX_REPORTED, did_you_mean, shorten
from dq.api.instants import check_due, parse_rfc3339
from dq.api.wire import answer_json
from dq.core.errors import FieldError, Invalid, NodeAway
from dq.core.topic import fault_of_topic_name, is_topic_name

UNFINISHED = ("delayed", "ready", "running")
STATES = (*UNFINISHED, "done", "dead", "cancelled")
MAX_LIMIT = 200
MAX_TEXT_CHARS = 256


class SearchCalls:
    """Handler of GET /v1/jobs."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/jobs", self.search)]

    async def search(self, request: web.Request) -> web.Response:
        search = read_search(request.query)
        in_journal = "delayed" if search.state in UNFINISHED else search.state
        page = await self._api.journal.search(replace(search, state=in_journal))
        states = await asyncio.gather(*(self._state_of(line) for line in page.jobs))
        found = [
            _line_doc(line, state)
            for line, state in zip(page.jobs, states, strict=True)
            if search.state in (None, state)
        ]
        cursor = page.next_cursor
        doc = {"data": found, "next_cursor": cursor, "has_more": cursor is not None}
        return answer_json(doc, headers=_link_to_next(request, cursor))

    async def _state_of(self, line: JobLine) -> str:
        if line.state not in UNFINISHED:
            return line.state
        try:
            view = await self._api.schedule.find(line.topic, line.id)
        except NodeAway:
            return line.state
        return view.state if view else line.state


def read_search(query: MultiMapping[str]) -> JobSearch:
    """Raises Invalid, naming every bad parameter."""
    values: dict[str, Any] = {}
    faults: list[FieldError] = []
    for name in query:
        try:
            values[_ATTRIBUTES.get(name, name)] = _read_one(name, query.getall(name))
        except ValueError as error:
            faults.append(FieldError(shorten(name), str(error)))
        if len(faults) >= MAX_REPORTED:
            break
    if faults:
        raise Invalid(faults)
    return JobSearch(**values)


def _read_one(name: str, values: list[str]) -> Any:
    if name not in _READERS:
        raise ValueError(f"is no parameter of a search{did_you_mean(name, _READERS)}")
    if len(values) > 1:
        raise ValueError("is given more than once")
    return _READERS[name](values[0])


def _read_topic(text: str) -> str:
    if not is_topic_name(text):
        raise ValueError(fault_of_topic_name(text))
    return text


def _read_state(text: str) -> str:
    if text not in STATES:
        raise ValueError(f"must be one of {', '.join(STATES)}")
    return text


def _read_text(text: str) -> str:
    if not 0 < len(text) <= MAX_TEXT_CHARS or not text.isprintable():
        raise ValueError(f"must be 1 to {MAX_TEXT_CHARS} printable characters")
    return text


def _read_instant(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return check_due(int(text))
    if " " in text:
        raise ValueError("has a space; in a query, write + as %2B")
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise ValueError(f"is no unix ms, and as a time it {error}") from None


def _read_limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise ValueError(f"must be a whole number from 1 to {MAX_LIMIT}")
    return int(text)


_READERS: dict[str, Callable[[str], Any]] = {
    "topic": _read_topic,
    "state": _read_state,
    "key": _read_text,
    "q": _read_text,
    "from": _read_instant,
    "to": _read_instant,
    "limit": _read_limit,
    "cursor": _read_text,
}
_ATTRIBUTES = {"from": "from_ms", "to": "to_ms"}


def _link_to_next(request: web.Request, cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    return {"Link": f'<{request.rel_url.update_query(cursor=cursor)}>; rel="next"'}


def _line_doc(line: JobLine, state: str) -> dict[str, Any]:
    return {
        "topic": line.topic,
        "id": line.id,
        "state": state,
        "due": line.due_ms,
        "attempt": line.attempt,
        "priority": line.priority,
        "key": line.key or None,
        "created": line.created_ms,
        "preview": line.preview.decode(errors="replace"),
        "size": line.size_bytes,
    }
