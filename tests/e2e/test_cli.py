"""An operator's day at the command line, on the real program."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done
from tests.e2e.program import ROOT, Program
from tests.e2e.receiver import Receiver
from tests.support import wait_until

NAMES = {
    "dq-master",
    "dq-server-0",
    "dq-admin",
    "dq-timer-0",
    "dq-consumer-0",
    "dq-consumer-1",
    "dq-redis-checker",
    "dq-journal",
    "dq-valkey",
}


class Shell:
    """Runs dq as someone does in the program's folder."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._environ = {
            name: value for name, value in program.environ.items() if name.startswith("DQ_")
        }

    def dq(self, *words: str, stdin: str = "") -> Done:
        return Done(self.program.folder, *words, stdin=stdin, **self._environ)

    def good(self, *words: str, stdin: str = "") -> str:
        done = self.dq(*words, stdin=stdin)
        assert (done.code, done.err) == (0, ""), (words, done.err)
        return done.out

    def bad(self, *words: str, stdin: str = "") -> str:
        """What it says on stderr; a mistake says nothing on stdout and is no success."""
        done = self.dq(*words, stdin=stdin)
        assert done.code in (1, 2), (words, done.code)
        assert done.out == ""
        assert len(done.err) > 10
        return done.err


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as one:
        yield one


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Shell]:
    with Program(tmp_path_factory.mktemp("cli")) as program:
        program.topic("t", callback=receiver.url)
        yield Shell(program)


def test_status_tells_of_every_process(shell: Shell) -> None:
    def status() -> Any:
        return json.loads(shell.good("status", "--json"))

    # The API can be ready before the last of the others has begun.
    wait_until(lambda: status()["state"] != "starting", 20, "all have begun")
    told = status()
    assert told["running"] is True
    assert told["state"] == "running"
    assert {one["name"] for one in told["processes"]} == NAMES
    assert told["pid"] == next(
        one["pid"] for one in told["processes"] if one["name"] == "dq-master"
    )
    for one in told["processes"]:
        command = Path(f"/proc/{one['pid']}/cmdline").read_bytes().split(b"\0")[0].decode()
        assert command.startswith(one["name"]), "the name is what `ps` shows"
        assert one["restarts"] == 0
        assert 0 < one["uptime_s"] < 3600
        assert 1_000_000 < one["memory_bytes"] < 500_000_000
    text = shell.good("status")
    heading, columns, *lines = text.splitlines()
    assert f"127.0.0.1:{shell.program.api_port}" in heading
    assert columns.split() == ["name", "pid", "uptime", "restarts", "memory", "state"]
    assert len(lines) == len(NAMES)
    for line in lines:
        assert re.fullmatch(r"dq-\S+ +\d+ +\d+:\d\d:\d\d +0 +\d+ MB  running", line), line


def test_a_topic_from_its_making_to_its_end(shell: Shell, receiver: Receiver) -> None:
    url = receiver.url + "/orders"
    saved = shell.good("topic", "set", "orders", "--callback", url, "--timeout", "2")
    assert saved == "orders saved\n"
    assert shell.good("topic", "set", "orders", "--paused") == "orders saved\n"
    found = json.loads(shell.good("topic", "get", "orders", "--json"))
    assert (found["callback"], found["timeout"], found["paused"]) == (url, 2, True)
    assert re.search(r"^orders +paused +http", shell.good("topic", "list"), re.MULTILINE)
    shell.good("topic", "set", "orders", "--resumed", "--disabled")
    assert "off line" in shell.bad("push", "orders", "1").lower()
    assert shell.good("topic", "delete", "orders") == "orders deleted\n"
    assert "orders" in shell.bad("topic", "get", "orders")
    assert "orders" in shell.bad("topic", "delete", "orders")
    assert "orders" in shell.bad("push", "orders", "1")


def test_a_job_is_pushed_looked_at_and_cancelled(shell: Shell, receiver: Receiver) -> None:
    pushed = json.loads(shell.good("push", "t", '{"a": [1, "é"]}', "--id", "now", "--json"))
    assert (pushed["id"], pushed["result"]) == ("now", "created")
    wait_until(lambda: "now" in receiver.ids())
    assert (
        next(call.body for call in receiver.calls if call.id == "now") == '{"a": [1, "é"]}'.encode()
    )
    done = wait_until(lambda: is_done(shell.good("get", "t", "now")))
    assert '"é"' in done
    assert "attempt 1" in done
    job = json.loads(shell.good("get", "t", "now", "--json"))
    assert [one["state"] for one in job["history"]] == ["delayed", "done"]

    said = shell.good("push", "t", "-", "--id", "later", "--delay", "3600", stdin="[2]")
    assert re.fullmatch(r"t later created, due \d{4}-\S+\n", said)
    assert "t later replaced" in shell.good("push", "t", "3", "--id", "later", "--delay", "60")
    refusal = shell.bad("push", "t", "3", "--id", "later", "--on-duplicate", "reject")
    assert "later" in refusal
    assert "delayed" in shell.good("get", "t", "later")
    assert shell.good("cancel", "t", "later") == "t later cancelled\n"
    assert "later" in shell.bad("cancel", "t", "later")
    assert "cancelled" in shell.good("get", "t", "later")
    assert "later" not in receiver.ids()


def is_done(text: str) -> str | None:
    return text if ": done, due" in text else None


@pytest.mark.parametrize(
    ("words", "hints"),
    [
        (("push", "t", "{a:1}"), ["JSON"]),
        (("push", "t", "1", "--due", "tomorrow"), ["due"]),
        (("push", "t", "1", "--delay", "-5"), ["delay"]),
        (("push", "t", "1", "--id", "a b"), ["id"]),
        (("push", "nosuch", "1"), ["nosuch"]),
        (("get", "t", "nosuch"), ["nosuch"]),
        (("topic", "set", "x", "--callback", "ftp://host/"), ["callback", "http"]),
        (("topic", "set", "x", "--retry-if", "{res.code}=!200"), ["retry_if"]),
        (("topic", "set", "a/b", "--callback", "http://h/"), ["A-Z"]),
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_in_words(shell: Shell, words: tuple[str, ...], hints: list[str]) -> None:
    said = shell.bad(*words)
    for hint in hints:
        assert hint in said, said


def test_settings_show_what_is_in_force_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "dq.toml").write_text('consumers = 7\napi_tokens = "sesame"\n')
    shown = json.loads(Done(tmp_path, "settings", "--json", DQ_TIMERS="3").out)
    assert [int(shown[key]) for key in ("consumers", "timers", "concurrency")] == [7, 3, 500]
    text = Done(tmp_path, "settings").out
    assert "sesame" not in text
    assert re.search(r"^api_tokens +set", text, re.MULTILINE)
    (tmp_path / "dq.toml").write_text("consumer = 7\n")
    done = Done(tmp_path, "settings")
    assert done.code == 1
    assert "consumers" in done.err


def test_without_a_running_program_nothing_is_a_success(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    for words in (["status"], ["stop"], ["reload"]):
        done = Done(tmp_path, *words)
        assert (done.code, done.out) == (1, ""), words
        assert done.err == f"dq: dq does not run on {folder}\n"
    told = Done(tmp_path, "status", "--json")
    assert told.code == 1
    assert json.loads(told.out)["running"] is False
    for words in (["push", "t", "1"], ["topic", "list"]):
        done = Done(tmp_path, *words, DQ_API_PORT="1")
        assert (done.code, done.out) == (1, ""), words
        assert "127.0.0.1:1" in done.err
        assert "dq start" in done.err


@pytest.mark.time_limit(120)
def test_reload_and_stop_wait_for_what_they_ask(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as program:
        shell = Shell(program)
        program.topic("t", callback=receiver.url, timeout=10)
        (tmp_path / "dq.toml").write_text("consumers = 3\n")
        assert shell.good("reload") == "reloaded\n"
        assert "dq-consumer-2" in program.pids()
        receiver.delay_s = 1.5
        assert program.push("t", "1").status == 201
        wait_until(lambda: receiver.calls)
        assert shell.bad("stop", "--timeout", "0.1").startswith("dq: dq (pid ")
        assert shell.good("stop") == "stopped\n"
        assert program.process is not None
        assert program.process.wait(10) == 0
        assert "does not run" in shell.bad("stop")
        program.start()
        wait_until(lambda: program.state("t", "1") == "done")
        assert receiver.ids() == {"1": 1}


@pytest.mark.skipif(
    not (ROOT / ".venv" / ".dq-installed").exists(), reason="bin/dq has no .venv yet"
)
def test_bin_dq_is_the_same_from_any_folder_and_by_a_link(shell: Shell, tmp_path: Path) -> None:
    link = tmp_path / "dq"
    link.symlink_to(ROOT / "bin" / "dq")
    environ = {key: v for key, v in shell.program.environ.items() if key != "PYTHONPATH"}
    environ["DQ_DATA_DIR"] = str(shell.program.folder / "data")
    told = subprocess.run(
        [link, "status", "--json"], cwd=tmp_path, env=environ, capture_output=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    assert {one["name"] for one in json.loads(told.stdout)["processes"]} == NAMES
    wrong = subprocess.run([link, "stat"], cwd=tmp_path, env=environ, capture_output=True)
    assert wrong.returncode == 2
    assert b"stat" in wrong.stderr
