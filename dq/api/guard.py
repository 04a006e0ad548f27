"""Who may call: a bearer token, or, while none is set, only programs on this machine.

A web page in the operator's browser can reach 127.0.0.1 as well. It can't forge `Host`, and its
browser adds `Origin` or `Sec-Fetch-Site` to what it sends, so without a token these three decide;
with one they don't matter, as the page doesn't know the token. Everything but the health checks
is behind this door: a new call is guarded unless it says otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

from aiohttp import web

from dq.api.problems import Problem, Refused

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered to everyone: they tell nothing worth hiding, and a load balancer has no token."""

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:]+))(?::\d*)?", re.ASCII)
_FOREIGN_SITES = ("cross-site", "same-site")


class Guard:
    """Checks a request before anything of it is read."""

    def __init__(self, tokens: Iterable[str], own_names: Iterable[str] = ()) -> None:
        """`tokens`: any of them opens; none: only local callers. `own_names`: host names and
        addresses, beside the loopback ones, by which this API may be called without a token."""
        self._tokens = [_digest(token.encode()) for token in tokens]
        self._own_names = frozenset(name.lower() for name in own_names)
        # A handful of Host values make up the whole traffic.
        self._is_own = lru_cache(maxsize=256)(self._is_own_host)

    def check(self, request: web.Request) -> None:
        """Raises Refused: 401 without a right token; 403 where none is set and it may be a web
        page that calls."""
        if request.rel_url.raw_path in OPEN_PATHS:
            return
        if self._tokens:
            self._check_token(request)
        else:
            self._check_local(request)

    def _check_token(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = _digest(token.strip().encode(errors="surrogateescape"))
        # All are compared, to the end: time must not tell which one was nearly right.
        matches = [hmac.compare_digest(given, known) for known in self._tokens]
        if scheme.lower() != "bearer" or not any(matches):
            raise Refused(_unauthorized("missing" if not token else "not one that dq knows"))

    def _check_local(self, request: web.Request) -> None:
        headers = request.headers
        hosts = headers.getall("Host", [])
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            raise Refused(_forbidden("its Host is not a name of this machine"))
        if "Origin" in headers:
            raise Refused(_forbidden("it has an Origin, so a web page sent it"))
        if headers.get("Sec-Fetch-Site", "").lower() in _FOREIGN_SITES:
            raise Refused(_forbidden("its Sec-Fetch-Site says that another site sent it"))

    def _is_own_host(self, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = match["v6"] or match["name"]
        if name == "localhost" or name in self._own_names:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def _digest(token: bytes) -> bytes:
    """Of one length whatever the token's: comparing must not tell that either."""
    return hashlib.sha256(token).digest()


def _unauthorized(why: str) -> Problem:
    return Problem(
        401,
        "unauthorized",
        "A token is needed",
        f"the token is {why}; send Authorization: Bearer TOKEN with one of DQ_API_TOKENS",
        headers={"WWW-Authenticate": 'Bearer realm="dq"'},
        closes=True,
    )


def _forbidden(why: str) -> Problem:
    return Problem(
        403,
        "forbidden",
        "Refused while no token is set",
        f"the request is refused: {why}; set DQ_API_TOKENS to allow such callers",
        closes=True,
    )
