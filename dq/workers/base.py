"""A child's half: from the fork to its exit code.

Runs one role on a uvloop of its own. It must never outlive its master: every worker holds the
reading end of a pipe whose writing end only the master has, so the kernel itself tells it, at
once and on any platform, when the master is gone; even a worker whose loop hangs then ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import uvloop
from setproctitle import setproctitle

from dq.core.pace import next_turn
from dq.core.settings import Settings
from dq.workers.errlog import log_errors_to
from dq.workers.errors import BOOT_ERROR, CRASHED, ORPHANED
from dq.workers.heartbeat import Heartbeat
from dq.workers.worker import Worker

BEAT_S = 1.0
ORPHAN_GRACE_S = 1.5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What a role's `run` gets. `sockets` listen already: those its role was given, by name."""

    settings: Settings
    role: str
    index: int
    name: str
    sockets: dict[str, socket.socket]
    heartbeat: Heartbeat
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def ready(self) -> None:
        """Tell the master that this worker has started: an error from now on is no boot error,
        and at a reload the one it replaces may go."""
        self.heartbeat.mark_ready()


Run = Callable[[Context], Awaitable[None]]


def run_worker(
    worker: Worker, settings: Settings, sockets: dict[str, socket.socket], lifeline: int
) -> int:
    """Live as `worker` until told to stop or the master is gone; answers the exit code.

    `lifeline` is the reading end of the master's pipe.
    """
    _settle_in(worker, settings)
    context = Context(
        settings, worker.role.title, worker.index, worker.name, sockets, worker.heartbeat
    )
    try:
        module = importlib.import_module(worker.role.module)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(context, module.run, lifeline))
    except Exception as error:
        return _tell_death(worker, error)
    if not context.stopping.is_set():
        log.error("%s ended by itself", worker.name)
        return CRASHED
    return 0


def _settle_in(worker: Worker, settings: Settings) -> None:
    # A session of its own: Ctrl-C in a terminal reaches the master only, which then stops its
    # workers in order.
    os.setsid()
    setproctitle(worker.name)
    for ignored in (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(ignored, signal.SIG_IGN)
    faulthandler.enable(worker.last_words, all_threads=True)
    log_errors_to(settings.log_dir, worker.name)


async def _live(context: Context, run: Run, lifeline: int) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        loop.add_signal_handler(number, context.stopping.set)
    watch = threading.Thread(
        target=_watch_master, args=(lifeline, loop, context.stopping), daemon=True
    )
    watch.start()
    beating = asyncio.create_task(_beat(context.heartbeat))
    try:
        await run(context)
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


async def _beat(heartbeat: Heartbeat) -> None:
    while True:
        heartbeat.beat()
        await next_turn(BEAT_S)


def _watch_master(lifeline: int, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Runs in a thread, because a hung loop would not notice."""
    os.read(lifeline, 1)  # nobody writes: it returns when the master is gone
    with contextlib.suppress(RuntimeError):  # the loop is closed: this worker is leaving anyway
        loop.call_soon_threadsafe(stopping.set)
    select.select([], [], [], ORPHAN_GRACE_S)
    os._exit(ORPHANED)


def _tell_death(worker: Worker, error: Exception) -> int:
    if worker.heartbeat.is_ready:
        log.exception("%s stopped working", worker.name)
        return CRASHED
    log.exception("%s could not start", worker.name)
    reason = str(error) or type(error).__name__
    worker.last_words.write(reason.encode("utf-8", "backslashreplace"))
    worker.last_words.flush()
    return BOOT_ERROR
