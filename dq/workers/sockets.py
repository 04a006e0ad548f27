"""Listening sockets, bound by the master before the first fork.

Bound once and shared: workers come and go, the address stays, and no connection is refused
while they change.
"""

from __future__ import annotations

import errno
import os
import socket

from dq.core.settings import Settings
from dq.workers.errors import StartRefused

_BACKLOG = 4096  # the kernel cuts it to net.core.somaxconn


def wanted_addresses(settings: Settings) -> dict[str, tuple[str, int]]:
    """Name -> host and port of each socket these settings ask for."""
    wanted = {
        "api": (settings.api_host, settings.api_port),
        "admin": (settings.admin_host, settings.admin_port),
    }
    if settings.tcp_port:
        wanted["tcp"] = (settings.api_host, settings.tcp_port)
    return wanted


def listen(name: str, host: str, port: int) -> socket.socket:
    """A listening socket; raises StartRefused with the setting to change."""
    where = f"{host or '*'}:{port}"
    listener = None
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise StartRefused(f"{where} {_reason(error)}; {_remedy(name)}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Where it listens, as it stands in a URL."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "is taken by another program"
    if error.errno == errno.EADDRNOTAVAIL:
        return "is no address of this machine"
    if error.errno == errno.EACCES:
        return "may not be used by this user"
    return f"can't be listened on: {error.strerror or os.strerror(error.errno or 0)}"


def _remedy(name: str) -> str:
    if name == "tcp":
        return "free it, or set DQ_TCP_PORT to another port"
    return f"free it, or set DQ_{name.upper()}_PORT (or DQ_{name.upper()}_HOST) to another"
