"""Sleeping until an instant more exactly than the event loop does, which knows whole milliseconds
and rounds up twice: a job would be called a millisecond later for that alone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time

_libc = ctypes.CDLL(None, use_errno=True)
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # as TFD_NONBLOCK and TFD_CLOEXEC


class _Spec(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns")]


class AlarmClock:
    """Sets `woken` when the time has come that was asked for last. For the running loop."""

    def __init__(self, woken: asyncio.Event) -> None:
        """Raises OSError."""
        self._woken = woken
        self._loop = asyncio.get_running_loop()
        self._fd = _libc.timerfd_create(time.CLOCK_MONOTONIC, _FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "no timer could be made")
        self._loop.add_reader(self._fd, self._ring)

    def set(self, after_s: float) -> None:
        """Ring once, so much later; 0 or less: at once."""
        seconds, ns = divmod(max(1, int(after_s * 1e9)), 1_000_000_000)
        if _libc.timerfd_settime(self._fd, 0, ctypes.byref(_Spec(0, 0, seconds, ns)), None):
            raise OSError(ctypes.get_errno(), "a timer could not be set")

    def close(self) -> None:
        """It rings no more."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._woken.set()
