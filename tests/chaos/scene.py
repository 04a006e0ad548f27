"""The whole program in a folder whose power can be cut, and how to strike at parts of it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.chaos.powercut import Mode, PowerCut, Taken
from tests.e2e.program import Program
from tests.support import wait_until


def rounds(short: int) -> int:
    """How many rounds a test makes: `short`, or what DQ_TEST_CHAOS_ROUNDS says."""
    return int(os.environ.get("DQ_TEST_CHAOS_ROUNDS") or short)


def seed() -> int:
    """DQ_TEST_CHAOS_SEED, else always the same."""
    return int(os.environ.get("DQ_TEST_CHAOS_SEED") or 1)


def time_limit_s(short_s: float, a_round_s: float) -> float:
    """For pytest.mark.time_limit: more rounds take longer."""
    return short_s + rounds(0) * a_round_s


class Scene:
    """A program and, where a shim is given, the power of its folder."""

    def __init__(
        self, folder: Path, shim: Path | None = None, *, lies: bool = False, **environ: str
    ) -> None:
        """`lies`: the syncs of dq's own logs are swallowed. `environ`: settings."""
        self.folder = folder / "dq"
        self.folder.mkdir()
        self.power = PowerCut(shim, self.folder, folder / "vault") if shim else None
        lie = self.folder / "data" / "log" if lies else None
        given = self.power.environ(lie) if self.power else {}
        self.dq = Program(self.folder, DQ_RETRY_UNIT="0.5", **given, **environ)

    def __enter__(self) -> Scene:
        self.dq.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.dq.process is not None and self.dq.process.poll() is None:
            self.kill_everything()

    @property
    def master(self) -> psutil.Process:
        assert self.dq.process is not None
        return psutil.Process(self.dq.process.pid)

    def process(self, name: str) -> psutil.Process:
        """The process of that name, as soon as there is one."""
        return wait_until(lambda: self._find(name), 20, name)

    def _find(self, name: str) -> psutil.Process | None:
        for one in self.master.children(recursive=True):
            try:
                words = one.cmdline()
            except psutil.Error:
                continue
            if one.is_running() and words and words[0].split(" ")[0].rstrip(":") == name:
                return one
        return None

    def kill_everything(self) -> None:
        """kill -9 for all at one blow, and wait until they are gone."""
        everyone = [self.master, *self.master.children(recursive=True)]
        for one in everyone:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        assert self.dq.process is not None
        self.dq.process.wait()
        wait_until(lambda: not any(is_alive(one) for one in everyone), 10, "all are gone")

    def cut_all(self, mode: Mode, rng: random.Random) -> Taken:
        """The power of the whole machine; nothing is started again yet."""
        assert self.power is not None
        self.kill_everything()
        return self.power.cut(mode=mode, rng=rng)

    @contextmanager
    def valkey_is_down(self) -> Iterator[Path]:
        """Valkey was killed -9, and is started again by its master at the end; its folder."""
        master, valkey = self.master, self.process("dq-valkey")
        master.send_signal(signal.SIGSTOP)
        try:
            valkey.kill()
            wait_until(lambda: not is_alive(valkey), 10, "valkey is gone")
            yield self.folder / "data" / "valkey"
        finally:
            master.send_signal(signal.SIGCONT)

    def cut_valkey(self, mode: Mode, rng: random.Random) -> Taken:
        """The power of the node alone."""
        assert self.power is not None
        with self.valkey_is_down() as folder:
            return self.power.cut(folder, mode, rng)


def is_alive(process: psutil.Process) -> bool:
    """A zombie is not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
