"""A node that comes back with less than it had: what is missing is put back, with no hand on it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import redis

from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.support import wait_until


def fill(dq: Program, receiver: Receiver, pending: int) -> int:
    """500 done, 10 cancelled, `pending` waiting; the due time of these."""
    dq.topic("t", callback=receiver.url)
    push_many(dq, [{"topic": "t", "id": f"done-{n}", "body": n} for n in range(500)])
    wait_until(lambda: len(receiver.ids()) == 500, 20)
    due = int(time.time() * 1000) + 12_000
    names = [f"wait-{n}" for n in range(pending)] + [f"gone-{n}" for n in range(10)]
    push_many(dq, [{"topic": "t", "id": name, "body": name, "due": due} for name in names])
    for number in range(10):
        assert dq.call("DELETE", f"/v1/jobs/t/gone-{number}").json == {"result": "cancelled"}
    return due


def push_many(dq: Program, jobs: list[dict[str, object]]) -> None:
    for start in range(0, len(jobs), 1000):
        reply = dq.call("POST", "/v1/jobs/batch", {"jobs": jobs[start : start + 1000]})
        assert {one["status"] for one in reply.json["results"]} == {201}


def check_all_come_once(receiver: Receiver, due: int, pending: int) -> None:
    wanted = {f"wait-{n}": 1 for n in range(pending)} | {f"done-{n}": 1 for n in range(500)}
    wait_until(lambda: len(receiver.ids()) >= len(wanted), 40, "all jobs")
    assert receiver.ids() == wanted
    assert all(call.at_ms >= due for call in receiver.calls if call.id.startswith("wait-"))


@pytest.mark.time_limit(120)
def test_valkey_killed_and_every_file_of_it_deleted(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        due = fill(dq, receiver, 3000)
        pid = dq.pids()["dq-valkey"]
        shutil.rmtree(tmp_path / "data" / "valkey" / "appendonlydir")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: dq.state("t", "wait-2999") == "delayed", 30)
        wait_until(lambda: dq.state("t", "gone-1") == "cancelled", 30)
        check_all_come_once(receiver, due, 3000)
        assert dq.stop() == 0


@pytest.mark.time_limit(120)
def test_flushall_while_callbacks_run(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        due = fill(dq, receiver, 1000)
        dq.topic("slow", callback=receiver.url, timeout=30)
        receiver.delay_s = 4.0
        push_many(dq, [{"topic": "slow", "id": f"run-{n}", "body": n} for n in range(50)])
        wait_until(lambda: len(receiver.ids()) == 550, 10)
        path = tmp_path / "data" / "valkey" / "valkey.sock"
        with redis.Redis(unix_socket_path=str(path.resolve())) as client:
            client.flushall()
        receiver.delay_s = 0.0
        assert dq.push("t", "fresh", delay=0).status in (201, 503)
        wait_until(lambda: dq.state("slow", "run-49") == "done", 20)
        wait_until(lambda: dq.push("t", "fresh2").status == 201, 20)
        wait_until(lambda: len(receiver.ids()) >= 1552, 40)
        repeated = {id_: n for id_, n in receiver.ids().items() if n > 1}
        assert not repeated
        waiting = [call for call in receiver.calls if call.id.startswith("wait-")]
        assert len(waiting) == 1000
        assert all(call.at_ms >= due for call in waiting)


@pytest.mark.time_limit(120)
def test_everything_is_gone_and_all_is_started_again(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        due = fill(dq, receiver, 1000)
        dq.kill_all()
        shutil.rmtree(tmp_path / "data" / "valkey")
        dq.start()
        check_all_come_once(receiver, due, 1000)
