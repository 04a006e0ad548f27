"""One worker as its master sees it.

Made before its fork and shared with the child by memory only: the child beats its heart and may
leave last words (why it could not start, or the stack it crashed or hung in).
"""

from __future__ import annotations

import signal
import tempfile

from dq.core.clock import mono_ms
from dq.workers.heartbeat import Heartbeat
from dq.workers.process import Process
from dq.workers.roles import Role

_LONGEST_LAST_WORDS = 64 * 1024


class Worker(Process):
    """`generation` counts reloads: it tells the new worker of a name from the old."""

    def __init__(self, role: Role, index: int, generation: int) -> None:
        self.role = role
        self.index = index
        self.generation = generation
        self.name = role.process_name(index)
        self.patience_s = role.patience_s
        self.is_condemned = False
        self.heartbeat = Heartbeat()
        self.last_words = tempfile.TemporaryFile(prefix="dq-")  # noqa: SIM115 - closed by `close`
        self.is_born()

    @property
    def is_running(self) -> bool:
        return self.heartbeat.is_ready

    def silent_s(self, watched_since_ms: float) -> float:
        """For how long its loop has shown no life while the master was watching."""
        return (mono_ms() - max(self.heartbeat.last_ms(), watched_since_ms)) / 1000

    def condemn(self, last_words_s: float) -> None:
        """ABRT makes it write down its stack; then it is killed."""
        self.is_condemned = True
        self.hurry(last_words_s)
        self.send(signal.SIGABRT)

    def read_last_words(self) -> str:
        self.last_words.seek(0)
        return self.last_words.read(_LONGEST_LAST_WORDS).decode("utf-8", "replace").strip()

    def close(self) -> None:
        self.heartbeat.close()
        self.last_words.close()
