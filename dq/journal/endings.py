"""Told at once when a process ends, and by the kernel: nobody has to look again and again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Endings:
    """Calls `tell` when a process that is watched has ended. Where the system can't say so (before
    Linux 5.3) it is never called: whoever relies on it looks once in a while, too."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell
        self._watched: dict[int, int] = {}  # pid -> what the kernel tells its end by
        self._ended: set[int] = set()

    def watch(self, pids: set[int]) -> None:
        """These, and no others."""
        for pid in self._watched.keys() - pids:
            self._let_go(pid)
        self._ended &= pids
        for pid in pids - self._watched.keys() - self._ended:
            self._begin(pid)

    def close(self) -> None:
        """Watch nobody any more."""
        self.watch(set())

    def _begin(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return
        self._watched[pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._end, pid)

    def _end(self, pid: int) -> None:
        self._let_go(pid)
        self._ended.add(pid)
        self._tell()

    def _let_go(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
