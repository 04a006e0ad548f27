"""data/lock: one master for each data folder, held by flock and with its pid inside.

The workers keep the lock that they inherit open. So after a master was killed with -9 the lock
is free only when the last of its workers has gone, and a new start can't meet them at work.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
from pathlib import Path

from dq.core.clock import mono_ms
from dq.workers.errors import StartRefused
from dq.workers.procfs import is_alive, name_of
from dq.workers.status import read_status

_LEAVING_S = 3.0  # workers of a killed master leave within 2 s
_KILLED_S = 3.0


class DataLock:
    """The lock of one data folder, in the process that takes it and its children."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file = -1

    def take(self) -> None:
        """Raises StartRefused, naming the pid, while another master runs here."""
        self._file = os.open(self._data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        if not self._wait_for_lock(_LEAVING_S):
            self._end_stragglers()
            if not self._wait_for_lock(_KILLED_S):
                raise StartRefused(
                    f"workers of a killed dq still hold {self._data_dir}; "
                    f"end the processes named dq-…, then start again"
                )
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def give_back(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1

    def _wait_for_lock(self, patience_s: float) -> bool:
        deadline_ms = mono_ms() + patience_s * 1000
        while not _try_lock(self._file):
            pid = running_master(self._data_dir)
            if pid:
                raise StartRefused(
                    f"dq already runs on {self._data_dir} (pid {pid}); "
                    "`dq stop` stops it, another DQ_DATA_DIR starts a second one"
                )
            if mono_ms() > deadline_ms:
                return False
            select.select([], [], [], 0.05)
        return True

    def _end_stragglers(self) -> None:
        """A worker that is stopped or hangs in the kernel doesn't notice its master's death."""
        for process in read_status(self._data_dir).get("processes", []):
            pid = int(process.get("pid", 0))
            if is_alive(pid) and name_of(pid) == str(process.get("name"))[:15]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def running_master(data_dir: Path) -> int:
    """The pid of the master that runs on this folder; 0 when none does."""
    try:
        file = os.open(data_dir / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        if _try_lock(file):
            return 0
        text = os.pread(file, 32, 0).strip()
        pid = int(text) if text.isdigit() else 0
        return pid if is_alive(pid) else 0
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
