"""What an operator does to the running program with signals, and what must come of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flow import Flow
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.e2e.test_kills import is_alive
from tests.support import wait_until

ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


def pids_of(dq: Program) -> dict[str, int]:
    return {one["name"]: one["pid"] for one in dq.told()}


def status_of(dq: Program, name: str) -> dict[str, Any]:
    return next((one for one in dq.told() if one["name"] == name), {})


def is_settled(dq: Program) -> bool:
    return all(one["state"] == "running" for one in dq.told())


@pytest.mark.time_limit(120)
def test_a_stop_lets_running_callbacks_finish_and_begins_no_other(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path, DQ_CONCURRENCY="5", DQ_CONSUMERS="1") as dq:
        dq.topic("t", callback=receiver.url, timeout=10)
        called: set[str] = set()
        for number in ENDINGS:
            receiver.delay_s = 1.5
            wanted = {f"{number.name}-{n}" for n in range(8)}
            for id_ in sorted(wanted):
                assert dq.push("t", id_).status == 201
            wait_until(lambda seen=called: len(receiver.calls) >= len(seen) + 5)
            before = len(receiver.calls)
            began = time.monotonic()
            assert dq.stop(number) == 0
            took = time.monotonic() - began
            assert took < 8
            assert len(receiver.calls) == before, "a callback was begun after the signal"
            receiver.delay_s = 0
            dq.start()
            called |= wanted
            wait_until(lambda seen=called: set(receiver.ids()) == seen)
            for id_ in wanted:
                wait_until(lambda id_=id_: dq.state("t", id_) == "done")
        assert receiver.ids() == dict.fromkeys(called, 1)
        errors = [line["message"] for line in dq.lines("err") if line["level"] == "ERROR"]
        assert not errors


class Knocking(threading.Thread):
    """New connections, one after the other, as clients that keep none open; counts refusals."""

    def __init__(self, dq: Program) -> None:
        super().__init__(daemon=True)
        self._dq = dq
        self._is_over = threading.Event()
        self.answered = 0
        self.failures: list[str] = []
        self.start()

    def run(self) -> None:
        while not self._is_over.is_set():
            id_ = f"k-{self.answered + len(self.failures)}"
            try:
                reply = self._dq.push("t", id_)
            except OSError as error:
                self.failures.append(repr(error))
            else:
                self.answered += 1
                if reply.status != 201:
                    self.failures.append(f"{reply.status} {reply.raw!r}")

    def finish(self) -> None:
        self._is_over.set()
        self.join()


@pytest.mark.time_limit(120)
def test_a_reload_under_a_flow_refuses_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "dq.toml").write_text("consumers = 1\nmax_body = 1000\n")
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url)
        assert dq.push("t", "large", "x" * 2000).status == 413
        before = pids_of(dq)
        flow = Flow(dq, "t", 500, "f-", 1.0)
        knocking = Knocking(dq)
        for consumers in (2, 3):
            wait_until(lambda n=consumers: len(flow.acknowledged) >= 100 * (n - 1), 30)
            (tmp_path / "dq.toml").write_text(f"consumers = {consumers}\nmax_body = 5000\n")
            os.kill(before["dq-master"], signal.SIGHUP)
            wait_until(
                lambda n=consumers: f"dq-consumer-{n - 1}" in pids_of(dq) and is_settled(dq), 20
            )
        flow.finish()
        knocking.finish()
        assert not knocking.failures, knocking.failures[:3]
        assert knocking.answered > 10
        after = pids_of(dq)
        for name, pid in before.items():
            same = name in ("dq-master", "dq-valkey")
            assert (after[name] == pid) == same, name
        assert dq.push("t", "large", "x" * 2000).status == 201
        ids = {*flow.acknowledged, *(f"k-{n}" for n in range(knocking.answered)), "large"}
        wait_until(lambda: set(receiver.ids()) == ids, 30, "every job called back")
        assert set(receiver.ids().values()) == {1}
        assert {one["restarts"] for one in dq.told()} == {0}


@pytest.mark.time_limit(120)
def test_a_reload_with_a_mistake_and_a_second_start_are_refused_and_change_nothing(
    tmp_path: Path,
) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url)
        before = pids_of(dq)
        (tmp_path / "dq.toml").write_text("consumer = 3\n")
        os.kill(before["dq-master"], signal.SIGHUP)
        wait_until(lambda: any("not reloaded" in line["message"] for line in dq.lines("err")))
        told = next(line["message"] for line in dq.lines("err") if "reloaded" in line["message"])
        assert "consumer" in told
        assert "consumers" in told
        (tmp_path / "dq.toml").unlink()
        check_second_start_is_refused(dq, before["dq-master"])
        assert pids_of(dq) == before
        assert dq.push("t", "1").status == 201
        wait_until(lambda: receiver.ids() == {"1": 1})


@pytest.mark.time_limit(120)
def test_ttin_and_ttou_add_and_remove_a_consumer(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path, DQ_CONSUMERS="1") as dq:
        dq.topic("t", callback=receiver.url, timeout=10)
        master = pids_of(dq)["dq-master"]
        consumers = {"dq-consumer-0", "dq-consumer-1"}
        os.kill(master, signal.SIGTTIN)
        wait_until(lambda: consumers <= set(pids_of(dq)) and is_settled(dq))
        receiver.delay_s = 1.5
        jobs = [{"topic": "t", "id": str(n), "body": None} for n in range(200)]
        assert dq.call("POST", "/v1/jobs/batch", {"jobs": jobs}).status == 200
        wait_until(lambda: len(receiver.calls) == 200)
        os.kill(master, signal.SIGTTOU)
        os.kill(master, signal.SIGTTOU)  # the last one stays
        wait_until(lambda: not consumers <= set(pids_of(dq)))
        receiver.delay_s = 0
        assert "dq-consumer-0" in pids_of(dq)
        assert dq.push("t", "more").status == 201
        wait_until(lambda: dq.state("t", "more") == "done")
        for id_ in ("0", "99", "199"):
            wait_until(lambda id_=id_: dq.state("t", id_) == "done")
        assert set(receiver.ids().values()) == {1}


@pytest.mark.time_limit(120)
def test_a_worker_killed_again_and_again_is_replaced_after_growing_pauses(tmp_path: Path) -> None:
    with Program(tmp_path) as dq:
        pauses: list[float] = []
        for _ in range(6):
            pid = wait_until(lambda: status_of(dq, "dq-timer-0").get("pid"), 20)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda p=pid: status_of(dq, "dq-timer-0").get("pid") not in (p, None), 20)
            told = [one["message"] for one in dq.lines("err") if "it is replaced" in one["message"]]
            pauses.append(float(told[-1].rpartition("in ")[2].split()[0]))
        assert pauses == sorted(pauses)
        assert pauses[0] == 0
        assert pauses[-1] >= 0.4
        assert status_of(dq, "dq-timer-0")["restarts"] == 6
        assert status_of(dq, "dq-server-0")["restarts"] == 0
        assert dq.stop() == 0


def check_second_start_is_refused(dq: Program, master: int) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "dq", "start"],
        cwd=dq.folder,
        env=dq.environ,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert again.returncode not in (0, None)
    assert f"dq already runs on {dq.folder / 'data'} (pid {master})" in again.stderr
    assert len(again.stderr.strip().splitlines()) == 1


@pytest.mark.time_limit(120)
def test_a_killed_master_takes_all_along_and_its_jobs_come_after_a_restart(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url, timeout=30)
        receiver.delay_s = 60
        for number in range(20):
            assert dq.push("t", str(number)).status == 201
        wait_until(lambda: len(receiver.calls) == 20)
        before = pids_of(dq)
        assert len(before) == 9
        os.kill(before["dq-master"], signal.SIGKILL)
        began = time.monotonic()
        wait_until(lambda: not any(is_alive(pid) for pid in before.values()))
        assert time.monotonic() - began < 2
        assert dq.process is not None
        dq.process.wait()
        receiver.delay_s = 0
        dq.start()
        began = time.monotonic()
        wait_until(lambda: set(receiver.ids().values()) == {2})
        assert time.monotonic() - began < 3
        wait_until(lambda: dq.state("t", "19") == "done")
        assert set(receiver.ids().values()) == {2}
