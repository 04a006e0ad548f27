"""A whole dq for the bench: its own folder, free ports, everything else as by default.

Figures taken from it hold only while none of its processes was replaced: a look at its CPU raises
as soon as one has gone, until `see_processes`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dq.bench.children import start, stop
from dq.bench.errors import BenchFailed, last_words
from dq.bench.figures import Cpu
from dq.bench.load import TOPIC
from dq.bench.machine import cpu_of
from dq.bench.node import Node
from dq.client import Client
from dq.core.clock import mono_ms
from dq.core.settings import load_settings
from dq.workers.status import read_status

Tell = Callable[[str], None]
"""Says how far the work is; each text takes the place of the one before."""

_START_S = 60.0
_LOOK_S = 0.2
_QUIET_CORE = 0.15
_QUIET_LOOKS = 4  # longer than the journal waits for more to come
_STALLED_S = 60.0
_CALLBACK_TIMEOUT_S = 60


class Instance:
    """dq in `folder`, from `with` on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        ports = {"DQ_API_PORT": "0", "DQ_ADMIN_PORT": "0"}
        self._process = start(self.folder, "dq", "start", environ=ports)
        try:
            status = self._wait_running()
            self._began_ms = mono_ms()
            self.port = int(status["addresses"]["api"].rpartition(":")[2])
            self._pids = _pids_of(status)
            self.node = Node(self.folder / "data", load_settings(None, {}).buckets)
        except BaseException:
            stop(self._process)
            raise

    def _end(self) -> None:
        self.node.close()
        stop(self._process)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end()

    def wait_old(self, age_s: float) -> None:
        """Until it has run for so long."""
        time.sleep(max(0.0, age_s - (mono_ms() - self._began_ms) / 1000))

    def restart(self) -> float:
        """Stop it in good order and start it again; the seconds until it ran."""
        self._end()
        began_ms = mono_ms()
        self._begin()
        return (mono_ms() - began_ms) / 1000

    def kill(self, kind: str) -> None:
        """kill -9 its processes of a kind; others take their place, see `see_processes`."""
        for pid, its_kind in self._pids:
            if its_kind == kind:
                os.kill(pid, signal.SIGKILL)

    def see_processes(self) -> None:
        """Wait until all its processes live; from now on CPU is theirs."""
        deadline_ms = mono_ms() + _START_S * 1000
        while mono_ms() < deadline_ms:
            pids = _pids_of(read_status(self.folder / "data"))
            if len(pids) == len(self._pids) and all(
                Path(f"/proc/{pid}").exists() for pid, _ in pids
            ):
                self._pids = pids
                return
            time.sleep(0.05)
        raise BenchFailed(f"dq did not replace a process:\n{last_words(self.folder)}")

    def make_topic(self, url: str) -> None:
        """The topic of all loads, calling back at `url`."""
        with Client(f"http://127.0.0.1:{self.port}") as client:
            client.put_topic(TOPIC, {"callback": url, "timeout": _CALLBACK_TIMEOUT_S})

    def cpu_s(self) -> Cpu:
        """CPU-seconds so far by kind of process."""
        total: Cpu = {}
        for pid, kind in self._pids:
            try:
                total[kind] = total.get(kind, 0.0) + cpu_of(pid)
            except OSError:
                raise BenchFailed(
                    f"dq's {kind} ended in the middle:\n{last_words(self.folder)}"
                ) from None
        return total

    def wait_quiet(self, limit_s: float) -> bool:
        """Until nothing is left to do for any of its processes, the journal's writing included;
        False when that takes longer than `limit_s`."""
        deadline_ms = mono_ms() + limit_s * 1000
        quiet_looks = 0
        last_s, last_ms = sum(self.cpu_s().values()), mono_ms()
        while quiet_looks < _QUIET_LOOKS:
            if mono_ms() > deadline_ms:
                return False
            time.sleep(_LOOK_S)
            used_s, at_ms = sum(self.cpu_s().values()), mono_ms()
            is_quiet = used_s - last_s < _QUIET_CORE * (at_ms - last_ms) / 1000
            quiet_looks = quiet_looks + 1 if is_quiet else 0
            last_s, last_ms = used_s, at_ms
        return True

    def rest(self, limit_s: float = 180.0) -> None:
        """`wait_quiet`, or BenchFailed."""
        if not self.wait_quiet(limit_s):
            raise BenchFailed(f"dq did not come to rest within {limit_s:g} s")

    def wait_settled(self, waiting: int, told: Callable[[int], None]) -> None:
        """Until no more than `waiting` jobs are unfinished, telling how many more there are; gives
        up when none is finished for long."""
        fewest, since_ms = self.node.jobs(), mono_ms()
        while fewest > waiting and mono_ms() - since_ms < _STALLED_S * 1000:
            told(fewest - waiting)
            time.sleep(0.05)
            jobs = self.node.jobs()
            if jobs < fewest:
                fewest, since_ms = jobs, mono_ms()

    def _wait_running(self) -> dict[str, Any]:
        deadline_ms = mono_ms() + _START_S * 1000
        while mono_ms() < deadline_ms and self._process.poll() is None:
            status = read_status(self.folder / "data")
            if status.get("state") == "running":
                return status
            time.sleep(0.05)
        raise BenchFailed(f"dq did not start:\n{last_words(self.folder)}")


def _pids_of(status: dict[str, Any]) -> list[tuple[int, str]]:
    return [(one["pid"], _kind_of(one["name"])) for one in status["processes"]]


def _kind_of(name: str) -> str:
    """dq-server-0 is a server, dq-redis-checker the checker."""
    kind = name.removeprefix("dq-").rstrip("-0123456789")
    return kind.removeprefix("redis-")
