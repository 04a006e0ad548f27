"""Signals as a list that the master reads when it comes round.

A handler that does work runs in the middle of anything. So these do nothing: the interpreter
itself writes each number into a pipe, and the master's loop sleeps on that pipe.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_NUMBERS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR2,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGCHLD,
)

_Handler = Callable[[int, FrameType | None], Any] | int | None


def _do_nothing(_: int, __: FrameType | None) -> None:
    """The number is in the pipe already."""


class SignalQueue:
    """Takes over the signals that mean something to the master, until `close`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before: dict[signal.Signals, _Handler] = {
            number: signal.signal(number, _do_nothing) for number in _NUMBERS
        }

    def wait(self, timeout_s: float) -> list[str]:
        """The signals that came, in order, as "sigterm"; empty after `timeout_s`."""
        ready, _, _ = select.select([self._read], [], [], timeout_s)
        numbers = os.read(self._read, 4096) if ready else b""
        return [signal.Signals(number).name.lower() for number in numbers]

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fork(self) -> int:
        """os.fork; in the child signals mean what they usually mean, from its first moment."""
        with _held_back():
            pid = os.fork()
            if pid == 0:
                self._leave_to_parent()
        return pid

    def _leave_to_parent(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals wait, so that none reaches a child that still has its parent's pipe."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_parent(parent: int) -> None:
    """In a child that will be another program: TERM when `parent` is gone, however it went.

    Only Linux can do that; elsewhere the child stays, and the next start must end it.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel was asked
        os._exit(1)
