"""One worker as its master sees it, and the pauses between a worker's deaths.

A `Worker` is made before its fork and shared with the child by memory only: the child beats
its heart and may leave last words (why it could not start, or where it was when it crashed).
"""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass, field
from typing import IO

from dq.core.clock import mono_ms, now_ms
from dq.workers.heartbeat import Heartbeat
from dq.workers.roles import Role

SETTLED_S = 5.0  # who lived this long did not die of its start
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0


def growing_pause_s(deaths: int) -> float:
    """The pause before the next start after so many deaths in a row: 0, 0.1, 0.2 … 30."""
    if deaths <= 1:
        return 0.0
    return min(FIRST_PAUSE_S * 2.0 ** min(deaths - 2, 20), LONGEST_PAUSE_S)


@dataclass(slots=True)
class Post:
    """What is remembered under a process's name while its workers come and go."""

    restarts: int = 0
    deaths_in_a_row: int = 0
    next_start_ms: float = 0.0

    def note_death(self, lived_s: float) -> float:
        """Answers the pause until the next start, in seconds."""
        self.restarts += 1
        self.deaths_in_a_row = 1 if lived_s >= SETTLED_S else self.deaths_in_a_row + 1
        pause_s = growing_pause_s(self.deaths_in_a_row)
        self.next_start_ms = mono_ms() + pause_s * 1000
        return pause_s

    def may_start(self) -> bool:
        return mono_ms() >= self.next_start_ms


def _last_words_file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="dq-")  # noqa: SIM115 - lives as long as its worker


@dataclass(slots=True, eq=False)
class Worker:
    """`generation` counts reloads; the `*_ms` without "started" are on the monotonic clock."""

    role: Role
    index: int
    generation: int
    pid: int = 0
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    last_words: IO[bytes] = field(default_factory=_last_words_file)
    started_ms: int = field(default_factory=now_ms)
    born_ms: float = field(default_factory=mono_ms)
    kill_at_ms: float | None = None
    is_leaving: bool = False

    @property
    def name(self) -> str:
        return self.role.process_name(self.index)

    @property
    def state(self) -> str:
        if self.is_leaving:
            return "stopping"
        return "running" if self.heartbeat.is_ready else "starting"

    def lived_s(self) -> float:
        return (mono_ms() - self.born_ms) / 1000

    def silent_s(self, watched_since_ms: float) -> float:
        return (mono_ms() - max(self.heartbeat.last_ms(), watched_since_ms)) / 1000

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)  # not reaped yet, so the pid is still this worker's

    def ask_to_leave(self) -> None:
        """TERM, and the time after which it is killed."""
        self.is_leaving = True
        self.kill_at_ms = mono_ms() + self.role.patience_s * 1000
        self.send(signal.SIGTERM)

    def hurry(self, within_s: float) -> None:
        sooner_ms = mono_ms() + within_s * 1000
        self.kill_at_ms = min(self.kill_at_ms or sooner_ms, sooner_ms)

    def read_last_words(self) -> str:
        self.last_words.seek(0)
        return self.last_words.read(64 * 1024).decode("utf-8", "replace").strip()

    def close(self) -> None:
        self.heartbeat.close()
        self.last_words.close()


def died_of(code: int) -> str:
    """A wait status in words; `code` is negative for a signal."""
    if code >= 0:
        return f"left with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"was killed by {name}, perhaps because memory ran out"
    return f"was killed by {name}"
