"""Recognizing the head of a plain push at first sight.

A producer's heads are the same bytes again and again, so a head is read once and then known by its
bytes: what it asks for, how long its body is, that the guard lets it in. Only what is plain beyond
doubt is recognized. Everything else, what is wrong or merely unusual, is None and left to aiohttp,
which reads it from its first byte: two readers that disagree about where a request ends would let
one be smuggled in another.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from multidict import CIMultiDict

from dq.api.guard import Guard
from dq.api.problems import Refused
from dq.api.wire import want_json

HEAD_BYTES = 8000
"""aiohttp takes a little more; it answers what is longer."""

LINES = 100
KNOWN = 1024

_REQUEST = re.compile(rb"POST (/v1/jobs|/v1/jobs/batch) HTTP/1\.1")
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[!-~](?:[ -~\t]*[!-~])?)?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)
_LONE_LF = re.compile(rb"(?<!\r)\n")
_BEGINNING = b"POST /v1/jobs"
_UNUSUAL = ("Transfer-Encoding", "Expect", "Upgrade", "Trailer")


class Head(NamedTuple):
    """A plain push to come. `length`: of its body, in bytes. `closes`: no other one follows."""

    is_batch: bool
    length: int
    closes: bool


class Heads:
    """Reads heads for one guard and its limits."""

    def __init__(self, guard: Guard, limit_bytes: int, batch_limit_bytes: int) -> None:
        self._guard = guard
        self._limits = (limit_bytes, batch_limit_bytes)
        self.read = lru_cache(KNOWN)(self._read)

    def forget(self) -> None:
        """Whom the guard lets in has changed: every head is looked at anew."""
        self.read.cache_clear()

    def _read(self, head: bytes) -> Head | None:
        """`head`: all before the empty line."""
        first, *lines = head.split(b"\r\n")
        request = _REQUEST.fullmatch(first)
        if request is None or len(lines) > LINES:
            return None
        headers = CIMultiDict[str]()
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is None:
                return None
            headers.add(match[1].decode("ascii"), match[2].decode("ascii"))
        raw_path = request[1].decode("ascii")
        if not self._is_let_in(raw_path, headers):
            return None
        return self._framing(raw_path == "/v1/jobs/batch", headers)

    def _is_let_in(self, raw_path: str, headers: CIMultiDict[str]) -> bool:
        """Whoever is not is told so by aiohttp's way."""
        try:
            self._guard.check_head(raw_path, headers)
            want_json(headers)
        except Refused:
            return False
        return all(len(headers.getall(name)) == 1 for name in headers)

    def _framing(self, is_batch: bool, headers: CIMultiDict[str]) -> Head | None:
        length = headers.get("Content-Length", "")
        connection = headers.get("Connection", "keep-alive").lower()
        if (
            any(name in headers for name in _UNUSUAL)
            or _LENGTH.fullmatch(length) is None
            or int(length) > self._limits[is_batch]
            or connection not in ("keep-alive", "close")
        ):
            return None
        return Head(is_batch, int(length), connection == "close")


def may_become_plain(part: bytes) -> bool:
    """Whether a head that is not all there yet may still become one that is recognized."""
    begins = part.startswith(_BEGINNING) or _BEGINNING.startswith(part)
    return begins and len(part) <= HEAD_BYTES and _LONE_LF.search(part) is None
