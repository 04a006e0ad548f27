"""A process that the master started, and what is remembered under its name when it has gone."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from dq.core.clock import mono_ms, now_ms

SETTLED_S = 5.0  # who lived this long did not die of its start
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the master waits for its processes, in seconds."""

    idle_s: float = 1.0
    busy_s: float = 0.05  # a round while something is starting or leaving
    silence_s: float = 30.0
    last_words_s: float = 1.0  # between ABRT, which tells where it hangs, and KILL
    hurry_s: float = 5.0
    slow_start_s: float = 10.0
    own_sleep_s: float = 5.0  # a round this late: we were stopped, perhaps with the workers


class Process:
    """Started, perhaps asked to leave, perhaps killed; the master reaps it.

    `patience_s`: how long after TERM it is killed. `longest_pause_s`: so long it stays away at most
    when it keeps dying. `kill_at_ms` and `born_ms` are on the
    monotonic clock, `started_ms` is unix time.
    """

    name: str
    pid: int = 0
    patience_s: float
    longest_pause_s: float = LONGEST_PAUSE_S
    kill_at_ms: float | None = None
    is_leaving: bool = False

    def is_born(self) -> None:
        """Its clocks start now."""
        self.started_ms = now_ms()
        self.born_ms = mono_ms()
        self.kill_at_ms = None
        self.is_leaving = False

    @property
    def is_running(self) -> bool:
        """Whether it has said that it has started."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        if self.is_leaving:
            return "stopping"
        return "running" if self.is_running else "starting"

    def entry(self, restarts: int) -> dict[str, object]:
        """Its line in the status."""
        return {
            "name": self.name,
            "pid": self.pid,
            "started_ms": self.started_ms,
            "restarts": restarts,
            "state": self.state,
        }

    def lived_s(self) -> float:
        return (mono_ms() - self.born_ms) / 1000

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)  # not reaped yet, so the pid is still this process's

    def ask_to_leave(self) -> None:
        """TERM, once, and the time after which it is killed."""
        if not self.is_leaving:
            self.is_leaving = True
            self.hurry(self.patience_s)
            self.send(signal.SIGTERM)

    def hurry(self, within_s: float) -> None:
        """It is killed within that time at the latest."""
        at_ms = mono_ms() + within_s * 1000
        self.kill_at_ms = at_ms if self.kill_at_ms is None else min(self.kill_at_ms, at_ms)

    def kill(self) -> None:
        self.kill_at_ms = None
        self.send(signal.SIGKILL)


@dataclass(slots=True)
class Post:
    """A name, and how its processes died so far."""

    restarts: int = 0
    deaths_in_a_row: int = 0
    next_start_ms: float = 0.0

    def note_death(self, lived_s: float, longest_pause_s: float = LONGEST_PAUSE_S) -> float:
        """Answers the pause until the next start, in seconds."""
        self.restarts += 1
        self.deaths_in_a_row = 1 if lived_s >= SETTLED_S else self.deaths_in_a_row + 1
        pause_s = min(growing_pause_s(self.deaths_in_a_row), longest_pause_s)
        self.next_start_ms = mono_ms() + pause_s * 1000
        return pause_s

    def forgive(self) -> None:
        """What it died of may be mended: try again at once."""
        self.deaths_in_a_row = 0
        self.next_start_ms = 0.0

    def may_start(self) -> bool:
        return mono_ms() >= self.next_start_ms


def growing_pause_s(deaths: int) -> float:
    """The pause before the next start after so many deaths in a row: 0, 0.1, 0.2 … 30."""
    if deaths <= 1:
        return 0.0
    return min(FIRST_PAUSE_S * 2.0 ** min(deaths - 2, 20), LONGEST_PAUSE_S)


def died_of(code: int) -> str:
    """A wait status in words; `code` is negative for a signal."""
    if code >= 0:
        return f"left with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"was killed by {name}, perhaps because memory ran out"
    return f"was killed by {name}"
