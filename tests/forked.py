"""A forked child for tests: does some work, says so, and then waits to be killed."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable


class Forked:
    """Forks when it is made and returns when `work` is done in the child; `said` is what it gave.

    The child holds on to whatever it opened until `kill`. Fails when `work` does.
    """

    def __init__(self, work: Callable[[], bytes]) -> None:
        read_end, write_end = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests, asleep
            self._pid = os.fork()
        if self._pid == 0:
            _live(work, write_end)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            verdict, _, self.said = pipe.read().partition(b" ")
        if verdict != b"ok":
            self.kill()
            raise AssertionError(f"in the forked child: {self.said.decode()}")

    def kill(self) -> int:
        """kill -9, and wait until it is gone; its wait status. Once."""
        os.kill(self._pid, signal.SIGKILL)
        return os.waitpid(self._pid, 0)[1]


def _live(work: Callable[[], bytes], write_end: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)  # should the test that made it die itself
    try:
        try:
            answer = b"ok " + work()
        except BaseException:
            answer = b"failed " + traceback.format_exc().encode()
        os.write(write_end, answer)
        os.close(write_end)
        signal.pause()
    finally:
        os._exit(1)
