"""The embedded Valkey: real servers, killed and broken."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import redis

from dq.workers.process import Post
from dq.workers.procfs import is_alive, name_of, processes_in
from dq.workers.valkey import Valkey
from tests.support import wait_until
from tests.workers.conftest import Start
from tests.workers.running import RunningMaster

STEADY = {"title": "steady", "module": "steady"}


def connect(master: RunningMaster) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(master.data_dir / "valkey" / "valkey.sock"))


def start_embedded(start: Start, **rest: object) -> RunningMaster:
    return start(STEADY, DQ_REDIS_URLS="", **rest).wait_up()


def valkeys(master: RunningMaster) -> list[int]:
    return processes_in(master.data_dir / "valkey", "dq-valkey")


def end_all(master: RunningMaster) -> None:
    """Master and Valkey killed, as by a power cut that spares the page cache."""
    valkey = master.pid_of("dq-valkey")
    master.send(signal.SIGSTOP)
    os.kill(valkey, signal.SIGKILL)
    master.send(signal.SIGKILL)
    master.wait_exit()
    wait_until(lambda: not is_alive(valkey))


def test_it_runs_under_its_name_and_appends(start: Start) -> None:
    master = start_embedded(start)
    pid = master.pid_of("dq-valkey")
    assert name_of(pid) == "dq-valkey"
    assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"dq-valkey\0")
    with connect(master) as client:
        config = client.config_get("*")
        assert config["appendonly"] == "yes"
        assert config["appendfsync"] == "everysec"
        assert config["maxmemory-policy"] == "noeviction"
        assert config["save"] == ""
        assert config["port"] == "0"


def test_what_it_held_is_there_after_a_stop(start: Start) -> None:
    master = start_embedded(start)
    with connect(master) as client:
        client.set("job", "kept")
    master.send(signal.SIGTERM)
    assert master.wait_exit() == 0
    assert not valkeys(master)
    with connect(start_embedded(start)) as client:
        assert client.get("job") == b"kept"


def test_it_is_replaced_when_killed(start: Start) -> None:
    master = start_embedded(start)
    with connect(master) as client:
        client.set("job", "kept")
    old, worker = master.pid_of("dq-valkey"), master.pid_of("dq-steady-0")
    os.kill(old, signal.SIGKILL)
    master.wait_replaced("dq-valkey", old)
    assert master.pid_of("dq-steady-0") == worker
    with connect(master) as client:
        assert client.get("job") == b"kept"


def test_it_never_stays_away_for_long(tmp_path: Path) -> None:
    longest_s = Valkey(tmp_path).longest_pause_s
    post = Post()
    pauses = [post.note_death(0.1, longest_s) for _ in range(20)]
    assert pauses[:3] == [0, 0.1, 0.2] and max(pauses) == 2.0


def test_it_leaves_within_2_s_when_the_master_is_killed(start: Start) -> None:
    master = start_embedded(start)
    pid = master.pid_of("dq-valkey")
    master.send(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), timeout_s=2.0)


def test_an_orphan_is_ended_before_a_new_one_starts(start: Start) -> None:
    first = start_embedded(start)
    orphan = first.pid_of("dq-valkey")
    with connect(first) as client:
        client.set("job", "kept")
    os.kill(orphan, signal.SIGSTOP)
    first.send(signal.SIGKILL)
    first.wait_exit()
    assert is_alive(orphan)
    second = start(STEADY, DQ_REDIS_URLS="")
    while is_alive(orphan):
        assert len(valkeys(second)) <= 1
    second.wait_up()
    assert len(valkeys(second)) == 1
    with connect(second) as client:
        assert client.get("job") == b"kept"


def test_a_file_broken_in_the_middle_is_set_aside(start: Start) -> None:
    first = start_embedded(start)
    with connect(first) as client:
        for number in range(1000):
            client.set(f"job{number}", "x" * 50)
    end_all(first)
    folder = first.data_dir / "valkey"
    file = next(folder.glob("appendonlydir/*.incr.aof"))
    broken = bytearray(file.read_bytes())
    middle = broken.index(b"*3\r\n", len(broken) // 2)
    broken[middle : middle + 4] = b"\xff\xff\xff\xff"
    file.write_bytes(broken)

    second = start_embedded(start)
    (aside,) = folder.glob("appendonlydir.broken-*")
    assert (aside / file.name).read_bytes() == broken
    with connect(second) as client:
        assert client.dbsize() == 0
    assert any("set aside" in line["message"] for line in second.errors())


def test_a_torn_tail_is_cut(start: Start) -> None:
    first = start_embedded(start)
    with connect(first) as client:
        for number in range(100):
            client.set(f"job{number}", "x" * 50)
    end_all(first)
    file = next((first.data_dir / "valkey").glob("appendonlydir/*.incr.aof"))
    os.truncate(file, file.stat().st_size - 7)
    with connect(start_embedded(start)) as client:
        assert client.dbsize() == 99


def test_it_can_not_start_in_a_folder_that_is_none(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "valkey").write_text("in the way")
    master = start(STEADY, DQ_REDIS_URLS="")
    assert master.wait_exit() == 1
    assert "the embedded Valkey can't start" in master.stderr()


def test_a_long_folder_name_is_no_hindrance(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / "with space%20"
    folder.mkdir(parents=True)
    role = {"title": "client", "module": "redis_client"}
    shelf = Path(tempfile.mkdtemp(prefix="dqt"))  # a test's own folder is too long already
    master = start(role, folder=folder, DQ_REDIS_URLS="", TMPDIR=str(shelf)).wait_up()
    assert master.notes() == ["pong"]
    master.send(signal.SIGTERM)
    assert master.wait_exit() == 0
    shelf.rmdir()  # nothing was left in it
