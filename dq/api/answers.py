"""Answers as bytes, for connections that are not aiohttp's: the same bytes as it would send.

All that does not change from answer to answer is put together once.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import msgspec
from aiohttp import web

from dq.api.problems import Problem, answer_problem
from dq.api.wire import answer_json
from dq.core import clock

Answer = tuple[bytes, bytes]
"""What precedes the length of the body, and the body."""

_CLOSE = b"\r\nConnection: close"
_encode = msgspec.json.Encoder().encode


def _first_part(response: web.Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {response.reason}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    return "\r\n".join([*lines, "Content-Length: "]).encode()


_FIRST_PARTS = {status: _first_part(answer_json(None, status)) for status in (200, 201)}


class _Date:
    """The header's value, made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = b""

    def now(self) -> bytes:
        second = clock.now_ms() // 1000
        if second != self._second:
            self._second = second
            self._text = formatdate(second, usegmt=True).encode()
        return self._text


_date = _Date()


def json_answer(doc: Any, status: int) -> Answer:
    """`doc` as JSON; `status`: 200 or 201."""
    return _FIRST_PARTS[status], _encode(doc)


def problem_answer(problem: Problem) -> Answer:
    """An error. Whether it ends the connection is for the caller to see to."""
    response = answer_problem(problem)
    assert isinstance(response.body, bytes)
    return _first_part(response), response.body


def to_bytes(answer: Answer, *, closes: bool) -> bytes:
    """All that is sent. `closes`: it says that the connection ends with it."""
    first, body = answer
    date = _date.now() + _CLOSE if closes else _date.now()
    return b"%b%d\r\nDate: %b\r\n\r\n%b" % (first, len(body), date, body)
