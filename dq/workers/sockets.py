"""Listening sockets, bound by the master before the first fork.

Bound once and shared: workers come and go, the address stays, and no connection is refused
while they change.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from collections.abc import Sequence

from dq.core.settings import Settings
from dq.workers.errors import StartRefused

_BACKLOG = 4096  # the kernel cuts it to net.core.somaxconn


class Listeners:
    """The sockets by name: "api", "admin", and "tcp" when it is on."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}
        self._asked: dict[str, tuple[str, int]] = {}

    def bind(self, settings: Settings) -> None:
        """Listen where `settings` say, at all of it or nothing; raises StartRefused.

        A socket whose address stays the same is kept. Workers of before keep theirs.
        """
        asked = _wanted(settings)
        new: dict[str, socket.socket] = {}
        try:
            for name, address in asked.items():
                if self._asked.get(name) != address:
                    new[name] = _listen(name, *address)
        except StartRefused:
            for listener in new.values():
                listener.close()
            raise
        for name in list(self._sockets):
            if name in new or name not in asked:
                self._sockets.pop(name).close()
        self._sockets.update(new)
        self._asked = asked

    def with_ports(self, settings: Settings) -> Settings:
        """The settings with the ports really taken, where 0 asked for a free one."""
        ports = {name: sock.getsockname()[1] for name, sock in self._sockets.items()}
        return dataclasses.replace(settings, api_port=ports["api"], admin_port=ports["admin"])

    def addresses(self) -> dict[str, str]:
        """Name -> host:port, as it stands in a URL."""
        return {name: _address_of(listener) for name, listener in self._sockets.items()}

    def keep(self, names: Sequence[str]) -> dict[str, socket.socket]:
        """In a child: close all but these, and answer them."""
        kept = {name: self._sockets.pop(name) for name in names if name in self._sockets}
        self.close()
        return kept

    def close(self) -> None:
        for listener in self._sockets.values():
            listener.close()
        self._sockets.clear()


def _wanted(settings: Settings) -> dict[str, tuple[str, int]]:
    wanted = {
        "api": (settings.api_host, settings.api_port),
        "admin": (settings.admin_host, settings.admin_port),
    }
    if settings.tcp_port:
        wanted["tcp"] = (settings.api_host, settings.tcp_port)
    return wanted


def _listen(name: str, host: str, port: int) -> socket.socket:
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
        raise StartRefused(f"{host or '*'}:{port} {_reason(error)}; {_remedy(name)}") from None
    return listener


def _address_of(listener: socket.socket) -> str:
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
