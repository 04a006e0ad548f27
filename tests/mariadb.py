"""A real MariaDB for tests: Debian's server on a port of its own, in a folder that goes with it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.support import wait_until

_MISSING = (
    "mariadbd is not installed (Debian: apt-get install mariadb-server), "
    "so nothing was tested on MariaDB"
)
_FAST = (
    "--no-defaults",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=32M",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--bind-address=127.0.0.1",
)


class MariaDB:
    """Start, stop, freeze and thaw; `fresh_url` makes an empty database. The user is root."""

    def __init__(self, *more: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dqm"))
        self.port = _free_port()
        self._as = ["--user=root"] if os.getuid() == 0 else []
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None
        self._names = count(1)

    def install(self) -> MariaDB:
        words = ["--no-defaults", f"--datadir={self.folder}/data", "--skip-test-db", *self._as]
        words.append("--auth-root-authentication-method=normal")
        subprocess.run(["mariadb-install-db", *words], check=True, capture_output=True)
        return self

    def start(self) -> MariaDB:
        words = [f"--datadir={self.folder}/data", f"--socket={self.folder}/s"]
        words += [f"--port={self.port}", f"--log-error={self.folder}/log"]
        self._process = subprocess.Popen([_server(), *_FAST, *words, *self._as, *self._more])
        wait_until(self._answers, 20, "mariadbd")
        return self

    def _answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    def run(self, sql: str, database: str | None = None) -> tuple[Any, ...]:
        """One statement, over the driver that no other code of the tests uses."""
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall())

    def fresh_url(self) -> str:
        name = f"dq{next(self._names)}"
        self.run(f"CREATE DATABASE {name}")
        return f"mysql+aiomysql://root@127.0.0.1:{self.port}/{name}"

    def freeze(self) -> None:
        """The server keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        wait_until(self._stands_still, 10, "every thread of mariadbd stopped")

    def _stands_still(self) -> bool:
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_mariadb() -> MariaDB:
    """A running server; skips the test that asks, in plain words, where there is none."""
    if shutil.which("mariadb-install-db") is None or not Path(_server()).exists():
        pytest.skip(_MISSING)
    return MariaDB().install().start()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """One server for all tests; each takes a database of its own by `fresh_url`."""
    server = start_mariadb()
    yield server
    server.stop()


def _server() -> str:
    return shutil.which("mariadbd") or "/usr/sbin/mariadbd"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
