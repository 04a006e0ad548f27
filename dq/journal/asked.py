"""Asking dq-journal to ship at once: who waits until SQL is up to date need not wait for its pace.

A datagram to a socket that lies in no folder (it is named after the log's), so nothing is left
behind and nobody waits: where no one listens the asker just waits for the journal's next turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

_KIND = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC


def ask_to_ship(root: Path) -> None:
    """Let the journal of the logs below `root` know that somebody waits."""
    with socket.socket(socket.AF_UNIX, _KIND) as asking:
        try:
            asking.sendto(b".", _address(root))
        except OSError:
            return  # nobody listens, or has been asked so often that he knows


class Asked:
    """The other end: calls `tell` when somebody has asked."""

    def __init__(self, root: Path, tell: Callable[[], None]) -> None:
        self._root = root
        self._tell = tell
        self._socket: socket.socket | None = None

    def listen(self) -> None:
        """Unless it does already. While another listens, one that is about to end, it comes to
        nothing: try again later."""
        if self._socket is not None:
            return
        listening = socket.socket(socket.AF_UNIX, _KIND)
        try:
            listening.bind(_address(self._root))
        except OSError:
            listening.close()
            return
        self._socket = listening
        asyncio.get_running_loop().add_reader(listening, self._hear, listening)

    def close(self) -> None:
        """Hear nothing any more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _hear(self, listening: socket.socket) -> None:
        try:
            while True:
                listening.recv(1)
        except OSError:
            self._tell()


def _address(root: Path) -> bytes:
    name = blake2b(os.fsencode(root.resolve()), digest_size=16).hexdigest()
    return b"\0dq-journal-" + name.encode()
