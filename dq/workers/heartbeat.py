"""How a worker shows its master that it is alive: one number in memory that both see.

The number is written by the event loop itself, never by a side thread: a hung loop must look
hung. Shared memory instead of a file's mtime, because touching a file can block on a slow disk
and then a healthy worker would be killed. The monotonic clock is the same in all processes.
"""

from __future__ import annotations

import mmap
import struct

from dq.core.clock import mono_ms

_BEAT = struct.Struct("=d")
_READY_AT = 8


class Heartbeat:
    """Made by the master before the fork; `beat` and `mark_ready` belong to the worker."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)
        self.beat()

    def beat(self) -> None:
        _BEAT.pack_into(self._memory, 0, mono_ms())

    def last_ms(self) -> float:
        """When it last beat, in ms of the monotonic clock."""
        return float(_BEAT.unpack_from(self._memory, 0)[0])

    def mark_ready(self) -> None:
        self._memory[_READY_AT] = 1

    @property
    def is_ready(self) -> bool:
        return self._memory[_READY_AT] == 1

    def close(self) -> None:
        self._memory.close()
