"""A callback as the bytes of an HTTP/1.1 request, for an endpoint that speaks plain http.

What is sent can't hold more than one request: no part of it has a line break, or any other control
character, that isn't written here. A URL that needs a second look (a user in it, an odd spelling of
an address, an escape in its host) is none of this module's: aiohttp takes it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from dq.core.callback import CallbackRequest

MAX_BODY = 1024 * 1024
"""Longer ones are sent piece by piece, by aiohttp."""

_URL = re.compile(
    r"http://(?P<host>[a-z0-9_.-]*[a-z0-9_-]|\[[0-9a-f.]*:[0-9a-f:.]*\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!\"$-~]*)?",
    re.ASCII | re.IGNORECASE,
)
_QUERY = re.compile(r"[!\"$-~]*", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_NUMBERS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.ASCII | re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = frozenset(("host", "content-length", "transfer-encoding", "connection", "te", "upgrade"))


class Target(NamedTuple):
    """Where a request goes: `host` is a name or, without brackets, an address."""

    host: str
    port: int
    is_address: bool
    path: str
    host_line: str


def target_of(request: CallbackRequest) -> Target | None:
    """Where `request` goes, or None when it is nothing for a plain client.

    Of the URL's parts only the query may differ from job to job, so the rest is parsed once.
    """
    base, mark, query = request.url.partition("?")
    if mark and _QUERY.fullmatch(query) is None:
        return None
    if request.body is not None and len(request.body) > MAX_BODY:
        return None
    return _target(base)


def request_bytes(request: CallbackRequest, target: Target) -> bytes:
    """All of the request. Raises ValueError for what can't be sent as a header."""
    _, mark, query = request.url.partition("?")
    lines = [f"{request.method} {target.path}{mark}{query} HTTP/1.1", target.host_line]
    accepts = True
    for name, value in request.headers:
        accepts = _checked(name) and accepts
        lines.append(f"{name}: {value}")
    if accepts:
        lines.append("Accept: */*")
    body = request.body
    lines.append("Accept-Encoding: identity")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if not "".join(lines).isprintable():
        _refuse_breaks(lines)
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode() if body is None else head.encode() + body


@lru_cache(maxsize=4096)
def _target(base: str) -> Target | None:
    parts = _URL.fullmatch(base)
    if parts is None:
        return None
    host, port = parts["host"].lower(), int(parts["port"] or 80)
    bare = host.strip("[]")
    is_address = _is_address(bare)
    if not 0 < port < 65536 or (not is_address and _reads_as_number(host)):
        return None
    where = host if port == 80 else f"{host}:{port}"
    return Target(bare, port, is_address, parts["path"] or "/", f"Host: {where}")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _reads_as_number(host: str) -> bool:
    """2852039166, 127.1, 0xa9fea9fe, a broken [::]: not names, but not to be guessed at here."""
    return host[0] == "[" or _NUMBERS.fullmatch(host.rpartition(".")[2]) is not None


@lru_cache(maxsize=4096)
def _checked(name: str) -> bool:
    """Whether a default Accept is still wanted beside this header. Raises ValueError."""
    lower = name.lower()
    if _TOKEN.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no header name")
    if lower in _FRAMING:
        raise ValueError(f"{name} frames the request")
    return lower != "accept"


def _refuse_breaks(lines: list[str]) -> None:
    for line in lines:
        if _CONTROL.search(line) is not None:
            raise ValueError(f"{line.partition(':')[0]} holds a control character")
