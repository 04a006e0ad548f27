"""Everything below data/ is gone, the logs for people are left: what never finished comes back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dq.core.clock import now_ms, rfc3339
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.e2e.test_restore import push_many
from tests.support import wait_until


def replay(dq: Program, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dq", "replay", *words],
        cwd=dq.folder,
        env=dq.environ,
        capture_output=True,
        text=True,
    )


@pytest.mark.time_limit(90)
def test_what_never_finished_is_listed_and_pushed_again(tmp_path: Path) -> None:
    begin = rfc3339(now_ms())
    with Receiver() as receiver, Program(tmp_path, DQ_RETRY_UNIT="3") as dq:
        dq.topic("t", callback=receiver.url)
        push_many(dq, [{"topic": "t", "id": f"done-{n}", "body": n} for n in range(20)])
        wait_until(lambda: len(receiver.calls) == 20, 10)
        due = int(time.time() * 1000) + 15_000
        jobs = [{"topic": "t", "id": f"wait-{n}", "body": {"n": n}, "due": due} for n in range(600)]
        push_many(dq, jobs)
        dq.push("t", "overdue", {"x": 1.50}, delay=0.5, priority="high", key="k", timeout=9)
        dq.call("DELETE", "/v1/jobs/t/wait-7")
        assert dq.push("t", "wait-8", "newer", due=due).json["result"] == "replaced"
        receiver.answer = lambda call: (500, b"no")
        wait_until(lambda: len(receiver.calls) == 21, 10)
        wait_until(lambda: len(dq.lines("request")) == 623 and len(dq.lines("notify")) == 21, 10)
        dq.kill_all()
        receiver.answer = lambda call: (200, b"ok")
        shutil.rmtree(tmp_path / "data")
        dq.start()
        dq.topic("t", callback=receiver.url)
        end = rfc3339(now_ms())

        dry = replay(dq, "--from", begin, "--to", end, "--json")
        assert dry.returncode == 0, dry.stderr
        told = json.loads(dry.stdout)
        assert (told["found"], told["applied"], told["broken_lines"]) == (600, False, 0)
        assert dq.state("t", "wait-1") is None
        listed = replay(dq, "--from", begin, "--topic", "t").stdout.splitlines()
        assert len(listed) == 601
        assert listed[-1].startswith("600 accepted and never finished")

        done = replay(dq, "--from", begin, "--to", end, "--apply")
        assert done.returncode == 0, done.stderr
        assert "600 pushed again" in done.stdout
        again = json.loads(replay(dq, "--from", begin, "--apply", "--json").stdout)
        assert (again["created"], again["failed"]) == (0, 0)

        found = dq.call("GET", "/v1/jobs/t/overdue").json
        assert (found["body"], found["priority"], found["key"]) == ({"x": 1.5}, "high", "k")
        wait_until(lambda: len(receiver.calls) == 621, 40, "all jobs")
        ids = receiver.ids()
        assert "wait-7" not in ids
        assert {id_: n for id_, n in ids.items() if n > 1} == {"overdue": 2}
        assert next(call for call in receiver.calls if call.id == "wait-8").body == b'"newer"'
        waiting = [call for call in receiver.calls if call.id.startswith("wait-")]
        assert all(call.at_ms >= due for call in waiting)


@pytest.mark.time_limit(60)
def test_what_could_not_be_done_is_told(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url, delay=3600)
        assert dq.push("t", "1").status == 201
        wait_until(lambda: len(dq.lines("request")) == 1)
        [log] = (tmp_path / "logs").glob("request_*.txt")
        with log.open("ab") as file:
            file.write(b"garbage\n")
        kept = replay(dq, "--from", "2020-01-01 00:00:00", "--apply")
        assert "0 pushed again, 1 were still there" in kept.stdout
        assert (kept.returncode, "1 broken lines" in kept.stderr) == (1, True)
        dq.call("DELETE", "/v1/topics/t")
        refused = replay(dq, "--from", "2020-01-01 00:00:00", "--apply")
        assert refused.returncode == 1
        assert "t 1: topic 't' is not registered" in refused.stderr
        assert replay(dq, "--from", "yesterday").returncode == 2
