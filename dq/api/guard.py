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
from multidict import MultiMapping

from dq.api.problems import Problem, Refused
from dq.db.token_book import TokenBook

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered to everyone: they tell nothing worth hiding, and a load balancer has no token."""

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:]+))(?::\d*)?", re.ASCII)
_FOREIGN_SITES = ("cross-site", "same-site")


class Guard:
    """Checks a request before anything of it is read."""

    def __init__(
        self,
        tokens: Iterable[str],
        own_names: Iterable[str] = (),
        book: TokenBook | None = None,
    ) -> None:
        """`tokens`, and those of `book`, made in the admin: any of them opens; none: only local
        callers. `own_names`: host names and addresses, beside the loopback ones, by which this
        API may be called without a token."""
        self._book = book
        self._tokens = [_digest(token.encode()) for token in tokens]
        self._own_names = frozenset(name.lower() for name in own_names)
        # A handful of Host values make up the whole traffic.
        self._is_own = lru_cache(maxsize=256)(self._is_own_host)

    def check(self, request: web.Request) -> None:
        """Raises Refused, see `check_head`."""
        self.check_head(request.rel_url.raw_path, request.headers)

    def check_head(self, raw_path: str, headers: MultiMapping[str]) -> None:
        """The head of a request alone decides. Raises Refused: 401 without a right token; 403
        where none is set and it may be a web page that calls."""
        if raw_path in OPEN_PATHS:
            return
        if self._tokens or (self._book is not None and self._book.is_wanted):
            self._check_token(headers)
        else:
            self._check_local(headers)

    def _check_token(self, headers: MultiMapping[str]) -> None:
        scheme, token, given = _read_token(headers)
        # All are compared, to the end: time must not tell which one was nearly right.
        matches = [hmac.compare_digest(given, known) for known in self._tokens]
        is_known = any(matches) or (self._book is not None and self._book.opens(given))
        if scheme.lower() != "bearer" or not is_known:
            raise Refused(_unauthorized("missing" if not token else "not one that dq knows"))

    def _check_local(self, headers: MultiMapping[str]) -> None:
        hosts = headers.getall("Host", [])
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            raise Refused(_forbidden("its Host is not a name of this machine"))
        if "Origin" in headers:
            raise Refused(_forbidden("it has an Origin, so a web page sent it"))
        if headers.get("Sec-Fetch-Site", "").lower() in _FOREIGN_SITES:
            raise Refused(_forbidden("its Sec-Fetch-Site says that another site sent it"))
        if self._book is not None and self._book.is_revoked(_read_token(headers)[2]):
            raise Refused(_unauthorized("revoked"))

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


def _read_token(headers: MultiMapping[str]) -> tuple[str, str, bytes]:
    """How it is sent, the token, and what stands for it."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return scheme, token, _digest(token.strip().encode(errors="surrogateescape"))


def _digest(token: bytes) -> bytes:
    """Of one length whatever the token's: comparing must not tell that either."""
    return hashlib.sha256(token).digest()


def _unauthorized(why: str) -> Problem:
    return Problem(
        401,
        "unauthorized",
        "A token is needed",
        f"the token is {why}; send Authorization: Bearer TOKEN with one of DQ_API_TOKENS "
        "or one made on the admin's page Access",
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
