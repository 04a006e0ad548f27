"""dq-master: forks the workers, watches them, replaces them, ends them.

One loop, one verb a method; a signal is a number that the loop reads when it comes round. What
should be is derived anew in each round from the settings, the generation and who lives, so
signals may come in any order. It must never import asyncio, Redis or SQL: it forks, and roles
are imported in the child. Its invariant: at most one master on a data folder, and nothing of it
outlives it by more than 2 s.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from setproctitle import setproctitle

from dq import __version__
from dq.core.clock import mono_ms, now_ms
from dq.core.errors import DqError
from dq.core.settings import Settings, SettingsError
from dq.workers.child import become
from dq.workers.errlog import log_errors_to
from dq.workers.errors import BOOT_ERROR, StartRefused
from dq.workers.lock import DataLock
from dq.workers.process import Limits, Post, Process, died_of
from dq.workers.roles import CONSUMER, ROLES, Role
from dq.workers.signals import SignalQueue
from dq.workers.sockets import Listeners
from dq.workers.status import StatusFile
from dq.workers.valkey import Valkey
from dq.workers.worker import Worker

NAME = "dq-master"

Announce = Callable[[Settings, Mapping[str, str]], None]

log = logging.getLogger(__name__)


class Master:
    """Runs `roles` with the settings that `load` answers, at the start and at each HUP.

    `announce(settings, addresses)` is called once, when every worker has started; `addresses`
    is "api" and "admin" to "host:port".
    """

    def __init__(
        self,
        load: Callable[[], Settings],
        *,
        roles: Mapping[str, Role] = ROLES,
        announce: Announce | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._load = load
        self._roles = list(roles.values())
        self._announce = announce
        self._limits = limits or Limits()
        self._workers: dict[int, Worker] = {}
        self._valkey: Valkey | None = None
        self._posts: defaultdict[str, Post] = defaultdict(Post)
        self._listeners = Listeners()
        self._generation = 1
        self._added_consumers = 0
        self._reloads = 0
        self._reload_error = ""
        self._is_up = False
        self._is_stopping = False
        self._is_hurried = False
        self._refusal: StartRefused | None = None
        self._started_ms = now_ms()
        self._told_start_ms = self._round_ms = self._watched_since_ms = mono_ms()

    def run(self) -> None:
        """Live until asked to stop and all workers have left.

        Raises SettingsError and StartRefused when dq can't start here; the text says why.
        """
        settings = self._load()
        _make_folders(settings)
        log_errors_to(settings.log_dir, NAME)
        lock = DataLock(settings.data_dir)
        lock.take()
        setproctitle(NAME)
        self._signals = SignalQueue()
        self._lifeline = os.pipe()
        self._status = StatusFile(settings.data_dir)
        try:
            self._listeners.bind(settings)
            self._settings = self._effective(settings)
            gc.freeze()
            while not self._is_over():
                self._round()
            self._status.clear()
        finally:
            self._listeners.close()
            self._signals.close()
            lock.give_back()
        if self._refusal:
            raise self._refusal

    def _round(self) -> None:
        is_quiet = self._is_complete() and not self._is_stopping
        for name in self._signals.wait(self._limits.idle_s if is_quiet else self._limits.busy_s):
            getattr(self, f"_on_{name}")()
        self._reap()
        self._murder()
        if self._is_stopping:
            self._leave()
        elif self._tend_valkey():
            self._manage()
            self._watch_start()
        self._status.tell(self._describe())

    def _is_over(self) -> bool:
        return self._is_stopping and not any(True for _ in self._processes())

    def _processes(self) -> Iterator[Process]:
        yield from self._workers.values()
        if self._valkey and self._valkey.pid:
            yield self._valkey

    # --- signals

    def _on_sigchld(self) -> None:
        """Every round reaps."""

    def _on_sigterm(self) -> None:
        self._is_hurried = self._is_stopping
        self._begin_stop()

    def _on_sigint(self) -> None:
        self._on_sigterm()

    def _on_sigusr2(self) -> None:
        self._begin_stop()

    def _on_sighup(self) -> None:
        if not self._is_stopping:
            self._reload()

    def _on_sigttin(self) -> None:
        self._added_consumers += 1

    def _on_sigttou(self) -> None:
        if any(self._wanted(role) > 1 for role in self._roles if role.title == CONSUMER):
            self._added_consumers -= 1

    # --- who died: bury it, and remember it under its name

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if self._valkey and pid == self._valkey.pid:
                self._bury_valkey(self._valkey, code)
            elif worker := self._workers.pop(pid, None):  # as pid 1 it gets strangers' orphans too
                self._bury(worker, code)

    def _bury(self, worker: Worker, code: int) -> None:
        last_words = worker.read_last_words()
        worker.close()
        if code == BOOT_ERROR and not worker.is_leaving:
            reason = f"{worker.name} could not start: {last_words}"
            if not self._is_up:
                self._refuse(reason)
                return
            self._reload_error = self._reload_error or reason
        self._tell_death(worker, worker.pid, died_of(code), last_words)

    def _bury_valkey(self, valkey: Valkey, code: int) -> None:
        pid = valkey.pid
        said = valkey.left(code)
        if said and not self._is_up and not valkey.is_leaving:
            self._refuse(f"the embedded Valkey could not start: {said}")
            return
        self._tell_death(valkey, pid, f"{died_of(code)}{said and ': '}{said}")

    def _tell_death(self, process: Process, pid: int, how: str, stack: str = "") -> None:
        if process.is_leaving:
            if not how.endswith(" 0"):
                log.warning("%s (pid %d) %s", process.name, pid, how, extra={"stack": stack})
            return
        pause_s = self._posts[process.name].note_death(process.lived_s(), process.longest_pause_s)
        text = "%s (pid %d) %s; it is replaced in %.1f s"
        log.error(text, process.name, pid, how, pause_s, extra={"stack": stack})

    # --- who hangs, or does not leave

    def _murder(self) -> None:
        now = mono_ms()
        if now - self._round_ms > self._limits.own_sleep_s * 1000:
            self._watched_since_ms = now
        self._round_ms = now
        for worker in self._workers.values():
            silent_s = worker.silent_s(self._watched_since_ms)
            if silent_s > self._limits.silence_s and not worker.is_condemned:
                log.error("%s (pid %d) hangs for %.0f s", worker.name, worker.pid, silent_s)
                worker.condemn(self._limits.last_words_s)
        for process in self._processes():
            if process.kill_at_ms is not None and now >= process.kill_at_ms:
                log.warning("%s (pid %d) does not leave: killed", process.name, process.pid)
                process.kill()

    # --- what is becomes what should be

    def _wanted(self, role: Role) -> int:
        added = self._added_consumers if role.title == CONSUMER else 0
        return max(0, role.count(self._settings) + added)

    def _manage(self) -> None:
        for role in self._roles:
            for index in range(self._wanted(role)):
                self._fill(role, index)
        for worker in self._workers.values():
            if self._is_spare(worker):
                worker.ask_to_leave()

    def _fill(self, role: Role, index: int) -> None:
        name = role.process_name(index)
        there = [worker for worker in self._workers.values() if worker.name == name]
        if any(worker.generation == self._generation for worker in there):
            return
        if there and not role.overlaps:
            for worker in there:
                worker.ask_to_leave()
        elif self._posts[name].may_start():
            self._spawn(role, index)

    def _is_spare(self, worker: Worker) -> bool:
        """No longer wanted, or its successor has started: replace before you remove."""
        if worker.index >= self._wanted(worker.role):
            return True
        return worker.generation < self._generation and any(
            other.name == worker.name and other.generation == self._generation and other.is_running
            for other in self._workers.values()
        )

    def _is_complete(self) -> bool:
        """Every post is filled by a worker of this generation that runs, and nobody else is."""
        wanted = sum(self._wanted(role) for role in self._roles)
        return (
            len(self._workers) == wanted
            and all(worker.generation == self._generation for worker in self._workers.values())
            and all(process.state == "running" for process in self._processes())
            and (self._valkey is None or self._valkey.is_running)
        )

    def _spawn(self, role: Role, index: int) -> None:
        worker = Worker(role, index, self._generation)
        try:
            worker.pid = self._signals.fork()
        except OSError as error:
            worker.close()
            pause_s = self._posts[worker.name].note_death(0)
            log.error("can't fork %s: %s; again in %.1f s", worker.name, error, pause_s)
            return
        if worker.pid == 0:
            for sibling in self._workers.values():
                sibling.close()
            become(worker, self._settings, self._listeners, self._lifeline)
        self._workers[worker.pid] = worker

    def _tend_valkey(self) -> bool:
        """Keep it running; False until it answers for the first time: workers wait for that."""
        if self._valkey is None:
            return True
        post = self._posts[self._valkey.name]
        if not self._valkey.pid and post.may_start():
            try:
                self._valkey.start()
            except OSError as error:
                post.note_death(0)
                log.error("the embedded Valkey can't start: %s", error)
                if not self._is_up:
                    self._refuse(f"the embedded Valkey can't start: {error}")
        self._valkey.look()
        return self._valkey.is_running or bool(self._workers)

    # --- start, reload, stop

    def _effective(self, settings: Settings) -> Settings:
        """What workers get: the ports really taken, and the URL of the embedded Valkey."""
        settings = self._listeners.with_ports(settings)
        if settings.redis_urls:
            return settings
        if self._valkey is None:
            self._valkey = Valkey(settings.data_dir, self._signals.fork)
        return dataclasses.replace(settings, redis_urls=(self._valkey.url,), embedded=True)

    def _watch_start(self) -> None:
        if self._is_up:
            return
        if self._is_complete():
            self._is_up = True
            if self._announce:
                self._announce(self._settings, self._listeners.addresses())
        elif mono_ms() - self._told_start_ms > self._limits.slow_start_s * 1000:
            self._told_start_ms = mono_ms()
            late = [process.name for process in self._processes() if not process.is_running]
            log.warning("still starting: %s", ", ".join(late))

    def _refuse(self, reason: str) -> None:
        """What can't start at first would not start later: leave with the first reason."""
        self._refusal = self._refusal or StartRefused(reason)
        self._is_hurried = True
        self._begin_stop()

    def _reload(self) -> None:
        self._reloads += 1
        try:
            settings = self._load()
            self._refuse_move(settings)
            _make_folders(settings)
            self._listeners.bind(settings)
        except DqError as error:
            self._reload_error = str(error)
            log.error("not reloaded, the workers stay as they are: %s", error)
            return
        log_errors_to(settings.log_dir, NAME)
        self._settings = self._effective(settings)
        self._reload_error = ""
        self._added_consumers = 0
        self._generation += 1
        for post in self._posts.values():
            post.forgive()

    def _refuse_move(self, settings: Settings) -> None:
        if settings.data_dir != self._settings.data_dir:
            raise SettingsError("DQ_DATA_DIR can't change while dq runs; stop it and start it")
        if bool(settings.redis_urls) == self._settings.embedded:
            raise SettingsError(
                "DQ_REDIS_URLS can't go to or from the embedded Valkey while dq runs; "
                "stop it and start it"
            )

    def _begin_stop(self) -> None:
        self._is_stopping = True
        self._listeners.close()  # from now on a client is refused, not left waiting

    def _leave(self) -> None:
        """One stage after the other, all at once when hurried; Valkey is the last."""
        stage = min((worker.role.stage for worker in self._workers.values()), default=-1)
        for worker in self._workers.values():
            if worker.role.stage == stage or self._is_hurried:
                worker.ask_to_leave()
            if self._is_hurried:
                worker.hurry(self._limits.hurry_s)
        if not self._workers and self._valkey and self._valkey.pid:
            self._valkey.ask_to_leave()

    def _describe(self) -> dict[str, Any]:
        """What data/status.json says."""
        state = "stopping" if self._is_stopping else "starting"
        if self._is_complete() and not self._is_stopping:
            state = "running"
        me = {"name": NAME, "pid": os.getpid(), "started_ms": self._started_ms, "restarts": 0}
        others = [
            process.entry(self._posts[process.name].restarts) for process in self._processes()
        ]
        return {
            "version": __version__,
            "state": state,
            "generation": self._generation,
            "reloads": self._reloads,
            "reload_error": self._reload_error,
            "addresses": self._listeners.addresses(),
            "processes": [{**me, "state": state}, *others],
        }


def _make_folders(settings: Settings) -> None:
    for folder in (settings.data_dir, settings.log_dir):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartRefused(f"can't make the folder {folder}: {error.strerror}") from None
