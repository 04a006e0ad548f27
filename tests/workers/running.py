"""A master in a process of its own, and what a test asks it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from dq.workers.procfs import is_alive, processes_in
from dq.workers.status import read_status
from tests.support import wait_until

ROOT = Path(__file__).parents[2]


class RunningMaster:
    """Started in `folder`, where it also keeps its data and logs; `stderr` is a file there."""

    def __init__(
        self,
        folder: Path,
        *roles: dict[str, Any],
        limits: dict[str, float] | None = None,
        **env: str | None,
    ) -> None:
        self.data_dir = folder / "data"
        self.log_dir = folder / "logs"
        self._stderr = folder / "stderr"
        settings: dict[str, str | None] = {
            "DQ_DATA_DIR": str(self.data_dir),
            "DQ_LOG_DIR": str(self.log_dir),
            "DQ_API_PORT": "0",
            "DQ_ADMIN_PORT": "0",
            "DQ_REDIS_URLS": "redis://127.0.0.1:1",  # nobody is asked there
        }
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **settings, **env}
        plan = json.dumps({"roles": roles, "limits": limits or {}})
        with self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.workers.toy_master", plan],
                cwd=folder,
                env={name: value for name, value in environ.items() if value is not None},
                stderr=stderr,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def wait_up(self) -> RunningMaster:
        wait_until(lambda: self.process.poll() is not None or self.state() == "running")
        assert self.process.returncode is None, self.stderr()
        return self

    def state(self) -> str:
        status = self.status()
        return str(status.get("state")) if self._is_mine(status) else ""

    def _is_mine(self, status: dict[str, Any]) -> bool:
        return any(process["pid"] == self.pid for process in status.get("processes", []))

    def status(self) -> dict[str, Any]:
        return read_status(self.data_dir)

    def pids(self) -> dict[str, int]:
        """Name -> pid of all but the master; of two with the same name, the newer."""
        processes = [p for p in self.status()["processes"] if p["name"] != "dq-master"]
        return {p["name"]: p["pid"] for p in processes}

    def pid_of(self, name: str) -> int:
        return self.pids().get(name, 0)

    def wait_replaced(self, name: str, old_pid: int) -> int:
        wait_until(
            lambda: self.state() == "running" and self.pid_of(name) not in (0, old_pid),
            what=f"{name} replaced",
        )
        return self.pid_of(name)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_exit(self, timeout_s: float = 10.0) -> int:
        return self.process.wait(timeout_s)

    def stderr(self) -> str:
        return self._stderr.read_text()

    def errors(self) -> list[dict[str, Any]]:
        """The lines of err_YYYYMMDD.txt."""
        files = sorted(self.log_dir.glob("err_*.txt"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def notes(self) -> list[str]:
        path = self.data_dir / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def end(self) -> None:
        """Whatever the test left alive ends here."""
        pids = [self.pid, *self.pids().values()] if self.status() else [self.pid]
        valkey = self.data_dir / "valkey"
        pids += processes_in(valkey, "dq-valkey") if valkey.exists() else []
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in pids))
