"""A master for tests: forks the real roles one by one, each with a fault in hand if wanted.

`python -m tests.chaos.crew` reads a line a worker from its input, "role fault keep_ms" (fault - for
none), and answers the pid. It never replaces anybody: who takes over, and when, is the test's to
say. Its workers are the program's own; just the pauses between two looks are shorter.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
from typing import NoReturn

from dq.core import faults
from dq.core.settings import Settings, load_settings
from dq.journal import heir, restore, shipper
from dq.log import log
from dq.queue import bell
from dq.workers import checker, consumer, server
from dq.workers.child import become
from dq.workers.roles import ROLES
from dq.workers.sockets import Listeners
from dq.workers.worker import Worker

HOLD_MS = 200


def hurry() -> None:
    """Look more often, hold locks for less long, begin a new segment early."""
    heir.AGAIN_S, heir.EACH_S, heir.RESCUE_EACH_S = 0.02, 0.1, 0.1
    shipper.LOOK_S = consumer.LOOK_S = server.LOOK_S = 0.02
    restore.LOCK_MS, restore.HOLD_MS = 300, HOLD_MS
    checker.EACH_S = checker.AGAIN_S = 0.03
    bell.ARM_S = 0.1
    shipper.UNSEEN_MS = 200
    log.SEGMENT_BYTES = 4096


def main() -> None:
    settings = load_settings(None, os.environ)
    settings.data_dir.mkdir(parents=True)
    settings.log_dir.mkdir(parents=True)
    for role in ROLES.values():
        importlib.import_module(role.module)
    hurry()
    listeners = Listeners()
    listeners.bind(settings)
    lifeline = os.pipe()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while words := os.read(0, 4096).split():
        print(born(words, settings, listeners, lifeline), flush=True)


def born(
    words: list[bytes], settings: Settings, listeners: Listeners, lifeline: tuple[int, int]
) -> int:
    """The pid of a new worker."""
    role, fault, keep_ms = (word.decode() for word in words)
    worker = Worker(ROLES[role], 0, 0)
    pid = os.fork()
    if pid == 0:
        live(worker, fault, int(keep_ms), settings, listeners, lifeline)
    worker.close()
    return pid


def live(
    worker: Worker,
    fault: str,
    keep_ms: int,
    settings: Settings,
    listeners: Listeners,
    lifeline: tuple[int, int],
) -> NoReturn:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # one that was stopped can't see that we are gone
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    shipper.KEEP_MS = keep_ms
    faults.arm("" if fault == "-" else fault)
    become(worker, settings, listeners, lifeline)


if __name__ == "__main__":
    sys.exit(main())
