"""The whole of dq through its own command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Done
from tests.e2e.program import Program

pytestmark = pytest.mark.time_limit(90)


def test_status_lists_every_process(tmp_path: Path) -> None:
    with Program(tmp_path):
        told = json.loads(Done(tmp_path, "status", "--json").out)
        assert {process["name"] for process in told["processes"]} == {
            "dq-admin",
            "dq-consumer-0",
            "dq-consumer-1",
            "dq-journal",
            "dq-master",
            "dq-redis-checker",
            "dq-server-0",
            "dq-timer-0",
            "dq-valkey",
        }
        assert all(process["memory_bytes"] > 1_000_000 for process in told["processes"])
        assert "dq-consumer-1" in Done(tmp_path, "status").out


def test_reload_waits_for_the_new_processes_and_tells_a_mistake(tmp_path: Path) -> None:
    with Program(tmp_path) as program:
        old = program.pids()
        assert Done(tmp_path, "reload").code == 0
        assert old["dq-server-0"] != program.pids()["dq-server-0"]

        (tmp_path / "dq.toml").write_text("consumers = 'many'")
        done = Done(tmp_path, "reload", DQ_CONSUMERS="1")  # this command's own settings are fine
        assert done.code == 1
        assert "consumers is 'many', not a whole number" in done.err


def test_stop_waits_until_all_have_left(tmp_path: Path) -> None:
    with Program(tmp_path) as program:
        done = Done(tmp_path, "stop")
        assert (done.code, done.out) == (0, "stopped\n")
        assert program.process is not None
        assert program.process.wait(5) == 0


def test_the_demo_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    done = Done(tmp_path, "demo", TMPDIR=str(tmp_path))
    assert done.code == 0, done.err + done.out
    assert "demo_moody 1, attempt 2" in done.out
    assert "mail: " in done.out
    assert "demo_broken 1 is dead" in done.out
    assert list(tmp_path.iterdir()) == []
