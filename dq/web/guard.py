"""Which requests are taken for the operator's own: the right Host, and nothing that another site
made the browser send.

A web page that points a name of its own at this machine (DNS rebinding) comes with that name as
Host. So Host must be an address, `localhost`, this machine's name or the one the admin listens on.
What changes something must come from a page of the admin itself.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import lru_cache

from aiohttp import web

from dq.web.refusals import Refusal
from dq.web.texts import Say

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:]+))(?::\d*)?", re.ASCII)


class Guard:
    """`own_names`: host names, beside this machine's, by which the admin is reached."""

    def __init__(self, own_names: Iterable[str] = ()) -> None:
        names = {"localhost", socket.gethostname(), *own_names}
        self._own_names = frozenset(name.lower() for name in names if name)
        self._is_own = lru_cache(maxsize=256)(self._is_own_host)

    def check_host(self, request: web.Request) -> None:
        """Raises Refusal."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            raise Refusal(
                403,
                Say(
                    "The request's Host is no name of this machine. Use its address; "
                    "a proxy in front must pass on the address it calls as Host."
                ),
            )

    def check_origin(self, request: web.Request) -> None:
        """For what changes something; raises Refusal."""
        site = request.headers.get("Sec-Fetch-Site", "").lower()
        origin = request.headers.get("Origin")
        # Where the browser says it, it is right even behind a proxy that changes Host.
        is_ours = site == "same-origin" if site else origin in (None, *_origins(request))
        if not is_ours:
            raise Refusal(403, Say("Another web site sent this form; it was not carried out."))

    def _is_own_host(self, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = match["v6"] or match["name"]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.rstrip(".") in self._own_names
        return True


def is_https(request: web.Request) -> bool:
    """Whether the browser came by https, as far as it can be seen; a proxy may say so."""
    return request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"


def _origins(request: web.Request) -> tuple[str, str]:
    return f"http://{request.host}", f"https://{request.host}"
