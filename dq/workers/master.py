"""dq-master: forks the workers, watches them, replaces them, ends them.

One loop, one verb a method: reap, murder, manage; a signal is a number that the loop reads when
it comes round. What should be is derived anew in each round from the settings, the generation
and who lives, so signals may come in any order. It must never import asyncio, Redis or SQL: it
forks, and roles are imported in the child. Its invariant: at most one master on a data folder,
and nothing of it survives it by more than 2 s.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import signal
import socket
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from setproctitle import setproctitle

from dq import __version__
from dq.core.clock import mono_ms, now_ms
from dq.core.errors import DqError
from dq.core.settings import Settings, SettingsError
from dq.workers.errlog import log_errors_to
from dq.workers.errors import BOOT_ERROR, CRASHED, StartRefused
from dq.workers.lock import DataLock
from dq.workers.roles import CONSUMER, ROLES, Role
from dq.workers.signals import SignalQueue
from dq.workers.sockets import address_of, listen, wanted_addresses
from dq.workers.status import clear_status, write_status
from dq.workers.valkey import Valkey
from dq.workers.worker import Post, Worker, died_of

NAME = "dq-master"
_SIGNALS = "HUP INT TERM USR2 TTIN TTOU CHLD"

Announce = Callable[[Settings, Mapping[str, str]], None]

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How long the master waits for things, in seconds."""

    idle_s: float = 1.0
    busy_s: float = 0.05  # between rounds while something is starting or leaving
    silence_s: float = 30.0
    last_words_s: float = 1.0  # between ABRT, which tells where it hangs, and KILL
    hurry_s: float = 5.0
    slow_start_s: float = 10.0


def announce_nothing(_: Settings, __: Mapping[str, str]) -> None:
    """The default: whoever started the master says nothing."""


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
        announce: Announce = announce_nothing,
        limits: Limits | None = None,
    ) -> None:
        self._load = load
        self._roles = list(roles.values())
        self._announce = announce
        self._limits = limits or Limits()
        self._workers: dict[int, Worker] = {}
        self._posts: defaultdict[str, Post] = defaultdict(Post)
        self._sockets: dict[str, socket.socket] = {}
        self._bound: dict[str, tuple[str, int]] = {}
        self._valkey: Valkey | None = None
        self._generation = 1
        self._added_consumers = 0
        self._reloads = 0
        self._reload_error = ""
        self._is_up = False
        self._is_stopping = False
        self._is_hurried = False
        self._refusal: StartRefused | None = None
        self._started_ms = now_ms()
        self._began_ms = self._last_round_ms = self._watched_since_ms = mono_ms()
        self._status: dict[str, object] = {}

    def run(self) -> None:
        """Live until asked to stop and all workers have left.

        Raises SettingsError, and StartRefused when dq can't start here; the text says why.
        """
        settings = self._load()
        _make_folders(settings)
        log_errors_to(settings.log_dir, NAME)
        self._lock = DataLock(settings.data_dir)
        self._lock.take()
        self._signals = SignalQueue([signal.Signals[f"SIG{name}"] for name in _SIGNALS.split()])
        self._lifeline = os.pipe()
        setproctitle(NAME)
        try:
            self._bind(settings)
            self._settings = self._with_valkey(self._with_ports(settings))
            gc.freeze()
            while not self._is_over():
                self._round()
        finally:
            self._close(settings.data_dir)
        if self._refusal:
            raise self._refusal

    # --- the loop

    def _round(self) -> None:
        for number in self._signals.wait(self._pause_s()):
            getattr(self, f"_on_{signal.Signals(number).name.lower()}")()
        self._reap()
        self._murder()
        if self._is_stopping:
            self._leave()
        elif self._tend_valkey():
            self._manage()
        if not self._is_up and not self._is_stopping:
            self._watch_start()
        self._tell_status()

    def _pause_s(self) -> float:
        return self._limits.idle_s if self._is_complete() else self._limits.busy_s

    def _is_over(self) -> bool:
        return self._is_stopping and not self._workers and not (self._valkey and self._valkey.pid)

    def _on_sigchld(self) -> None:
        """Each round reaps."""

    def _on_sigterm(self) -> None:
        if self._is_stopping:
            self._hurry()
        else:
            self._begin_stop()

    def _on_sigint(self) -> None:
        self._on_sigterm()

    def _on_sigusr2(self) -> None:
        if not self._is_stopping:
            self._begin_stop()

    def _on_sigttin(self) -> None:
        self._added_consumers += 1

    def _on_sigttou(self) -> None:
        if any(self._wanted(role) > 1 for role in self._roles if role.title == CONSUMER):
            self._added_consumers -= 1

    def _on_sighup(self) -> None:
        if not self._is_stopping:
            self._reload()

    # --- reap: bury who died, and remember it under the name

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
        if worker.is_leaving:
            if code != 0:
                log.warning("%s (pid %d) %s", worker.name, worker.pid, died_of(code))
            return
        if code == BOOT_ERROR:
            reason = f"{worker.name} could not start: {last_words}"
            if not self._is_up:
                self._refuse(reason)
                return
            self._reload_error = self._reload_error or reason
        pause_s = self._posts[worker.name].note_death(worker.lived_s())
        log.error(
            "%s (pid %d) %s; it is replaced in %.1f s",
            worker.name,
            worker.pid,
            died_of(code),
            pause_s,
            extra={"stack": last_words},
        )

    def _bury_valkey(self, valkey: Valkey, code: int) -> None:
        pid, was_leaving = valkey.pid, valkey.is_leaving
        outcome = valkey.left(code)
        if was_leaving:
            return
        pause_s = self._posts[valkey.name].note_death(valkey.lived_s())
        how = f"{died_of(code)}{': ' + outcome.reason if outcome.reason else ''}"
        if not self._is_up and code > 0 and not outcome.may_start_again:
            self._refuse(f"the embedded Valkey can't start; it {how}")
            return
        log.error("%s (pid %d) %s; it starts again in %.1f s", valkey.name, pid, how, pause_s)

    # --- murder: end who hangs, or does not leave

    def _murder(self) -> None:
        now = mono_ms()
        if now - self._last_round_ms > 5000:  # we were stopped, and perhaps the workers with us
            self._watched_since_ms = now
        self._last_round_ms = now
        for worker in self._workers.values():
            silent_s = worker.silent_s(self._watched_since_ms)
            if silent_s > self._limits.silence_s and not worker.is_condemned:
                log.error("%s (pid %d) hangs for %.0f s", worker.name, worker.pid, silent_s)
                worker.condemn(self._limits.last_words_s)
        for process in (*self._workers.values(), *([self._valkey] if self._valkey else [])):
            if process.pid and process.kill_at_ms is not None and now >= process.kill_at_ms:
                log.warning("%s (pid %d) did not leave and is killed", process.name, process.pid)
                process.kill()

    # --- manage: make what is equal to what should be

    def _wanted(self, role: Role) -> int:
        added = self._added_consumers if role.title == CONSUMER else 0
        return max(0, role.count(self._settings) + added)

    def _manage(self) -> None:
        for role in self._roles:
            for index in range(self._wanted(role)):
                self._fill(role, index)
        for worker in list(self._workers.values()):
            if not worker.is_leaving and self._is_spare(worker):
                worker.ask_to_leave()

    def _fill(self, role: Role, index: int) -> None:
        name = role.process_name(index)
        there = [worker for worker in self._workers.values() if worker.name == name]
        if any(worker.generation == self._generation for worker in there):
            return
        if there and not role.overlaps:
            for worker in there:
                if not worker.is_leaving:
                    worker.ask_to_leave()
        elif self._posts[name].may_start():
            self._spawn(role, index)

    def _is_spare(self, worker: Worker) -> bool:
        if worker.index >= self._wanted(worker.role):
            return True
        return worker.generation < self._generation and self._has_successor(worker)

    def _has_successor(self, worker: Worker) -> bool:
        return any(
            other.name == worker.name
            and other.generation == self._generation
            and other.state == "running"
            for other in self._workers.values()
        )

    def _is_complete(self) -> bool:
        """Every post is filled by a worker of this generation that has started, and no other."""
        wanted = sum(self._wanted(role) for role in self._roles)
        return (
            len(self._workers) == wanted
            and all(
                worker.state == "running" and worker.generation == self._generation
                for worker in self._workers.values()
            )
            and (self._valkey is None or self._valkey.state == "running")
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
            self._become(worker)
        self._workers[worker.pid] = worker

    def _become(self, worker: Worker) -> NoReturn:
        """The child, which never returns into the master's code."""
        code = BOOT_ERROR
        try:
            os.close(self._lifeline[1])
            for sibling in self._workers.values():
                sibling.close()
            mine = {name: self._sockets.pop(name) for name in worker.role.sockets if name in
                    self._sockets}
            for foreign in self._sockets.values():
                foreign.close()
            from dq.workers.base import run_worker  # asyncio begins here

            code = run_worker(worker, self._settings, mine, self._lifeline[0])
        except BaseException:
            traceback.print_exc()
            code = CRASHED if worker.heartbeat.is_ready else BOOT_ERROR
        finally:
            logging.shutdown()
            sys.stderr.flush()
            os._exit(code)

    # --- the embedded Valkey

    def _with_valkey(self, settings: Settings) -> Settings:
        if settings.redis_urls:
            return settings
        if self._valkey is None:
            self._valkey = Valkey(settings.data_dir, self._signals.fork)
        return dataclasses.replace(settings, redis_urls=(self._valkey.url,), embedded=True)

    def _tend_valkey(self) -> bool:
        """Keep it running; False until it answers for the first time: workers wait for that."""
        if self._valkey is None:
            return True
        if not self._valkey.pid and self._posts[self._valkey.name].may_start():
            try:
                self._valkey.start()
            except OSError as error:
                self._posts[self._valkey.name].note_death(0)
                if not self._is_up:
                    self._refuse(f"the embedded Valkey can't start: {error}")
                log.error("the embedded Valkey can't start: %s", error)
        return self._valkey.is_ready() or bool(self._workers) or self._is_up

    # --- start, reload, stop

    def _watch_start(self) -> None:
        if self._is_complete():
            self._is_up = True
            self._announce(self._settings, self._addresses())
        elif mono_ms() - self._began_ms > self._limits.slow_start_s * 1000:
            self._began_ms = mono_ms()
            late = [worker.name for worker in self._workers.values() if worker.state == "starting"]
            log.warning("still starting: %s", ", ".join(late) or "Valkey, which loads its data")

    def _refuse(self, reason: str) -> None:
        """What can't start at first would not start later: end with the first reason."""
        self._refusal = self._refusal or StartRefused(reason)
        self._begin_stop()
        self._hurry()

    def _reload(self) -> None:
        self._reloads += 1
        try:
            settings = self._load()
            self._refuse_move(settings)
            _make_folders(settings)
            self._bind(settings)
        except DqError as error:
            self._reload_error = str(error)
            log.error("not reloaded, the workers stay as they are: %s", error)
            return
        self._reload_error = ""
        self._settings = self._with_valkey(self._with_ports(settings))
        log_errors_to(settings.log_dir, NAME)
        self._added_consumers = 0
        self._generation += 1

    def _refuse_move(self, settings: Settings) -> None:
        if settings.data_dir != self._settings.data_dir:
            raise SettingsError("DQ_DATA_DIR can't change while dq runs; stop and start it")
        if bool(settings.redis_urls) == self._settings.embedded:
            raise SettingsError(
                "DQ_REDIS_URLS can't go to or from the embedded Valkey while dq runs; "
                "stop and start it"
            )

    def _bind(self, settings: Settings) -> None:
        """Listen where `settings` say. A socket whose address stays is kept; all or none."""
        wanted = wanted_addresses(settings)
        new = {}
        try:
            for name, address in wanted.items():
                if self._bound.get(name) != address:
                    new[name] = listen(name, *address)
        except StartRefused:
            for listener in new.values():
                listener.close()
            raise
        for name in self._sockets.keys() - (wanted.keys() - new.keys()):
            self._sockets.pop(name).close()  # workers of before keep theirs until they leave
        self._sockets.update(new)
        self._bound = wanted

    def _with_ports(self, settings: Settings) -> Settings:
        ports = {name: sock.getsockname()[1] for name, sock in self._sockets.items()}
        return dataclasses.replace(settings, api_port=ports["api"], admin_port=ports["admin"])

    def _begin_stop(self) -> None:
        self._is_stopping = True
        for listener in self._sockets.values():  # from now on a client is refused, not left waiting
            listener.close()
        self._sockets.clear()

    def _hurry(self) -> None:
        self._is_hurried = True

    def _leave(self) -> None:
        """One stage after the other; at the second TERM all at once. Valkey is the last."""
        stage = min((worker.role.stage for worker in self._workers.values()), default=-1)
        for worker in self._workers.values():
            if not worker.is_leaving and (worker.role.stage == stage or self._is_hurried):
                worker.ask_to_leave()
            if self._is_hurried:
                worker.hurry(self._limits.hurry_s)
        if not self._workers and self._valkey and self._valkey.pid:
            if not self._valkey.is_leaving:
                self._valkey.ask_to_leave()

    def _close(self, data_dir: Path) -> None:
        for listener in self._sockets.values():
            listener.close()
        self._signals.close()
        for end in self._lifeline:
            os.close(end)
        if self._is_over():
            clear_status(data_dir)
        self._lock.give_back()

    # --- status

    def _addresses(self) -> dict[str, str]:
        return {name: address_of(sock) for name, sock in self._sockets.items()}

    def _state(self) -> str:
        if self._is_stopping:
            return "stopping"
        return "running" if self._is_complete() else "starting"

    def _tell_status(self) -> None:
        people = [worker.as_status() for worker in self._workers.values()]
        if self._valkey and self._valkey.pid:
            people.append(self._valkey.as_status())
        for entry in people:
            entry["restarts"] = self._posts[str(entry["name"])].restarts
        master = {"name": NAME, "pid": os.getpid(), "started_ms": self._started_ms, "restarts": 0}
        status = {
            "version": __version__,
            "state": self._state(),
            "pid": os.getpid(),
            "generation": self._generation,
            "reloads": self._reloads,
            "reload_error": self._reload_error,
            "addresses": self._addresses(),
            "processes": [{**master, "state": self._state()}, *people],
        }
        if status != self._status:
            self._status = status
            try:
                write_status(self._settings.data_dir, status)
            except OSError as error:  # a full disk: `dq status` is stale, the work goes on
                log.warning("can't write the status: %s", error)


def _make_folders(settings: Settings) -> None:
    for folder in (settings.data_dir, settings.log_dir):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartRefused(f"can't make the folder {folder}: {error.strerror}") from None
