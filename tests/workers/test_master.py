"""The master with real forks and real signals."""

from __future__ import annotations

import os
import signal
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest

from dq.workers.procfs import is_alive, name_of
from tests.support import wait_until
from tests.workers.conftest import Start
from tests.workers.running import RunningMaster

STEADY = {"title": "steady", "module": "steady", "count": 2}
GREETER = {"title": "greeter", "module": "greeter", "count": 1, "sockets": ["api"]}


def test_every_wanted_worker_runs_under_its_name(start: Start) -> None:
    master = start(STEADY, GREETER).wait_up()
    assert master.pids().keys() == {"dq-steady-0", "dq-steady-1", "dq-greeter-0"}
    assert {name: name_of(pid) for name, pid in master.pids().items()} == {
        name: name for name in master.pids()
    }
    assert name_of(master.pid) == "dq-master"


def test_a_killed_worker_is_replaced(start: Start) -> None:
    master = start(STEADY).wait_up()
    old = master.pids()
    os.kill(old["dq-steady-1"], signal.SIGKILL)
    master.wait_replaced("dq-steady-1", old["dq-steady-1"])
    assert master.pid_of("dq-steady-0") == old["dq-steady-0"]
    restarts = {p["name"]: p["restarts"] for p in master.status()["processes"]}
    assert restarts["dq-steady-1"] == 1
    assert restarts["dq-steady-0"] == 0
    assert "was killed by SIGKILL" in master.errors()[0]["message"]


def test_a_worker_that_cannot_start_at_first_ends_the_master_with_the_reason(
    start: Start,
) -> None:
    master = start(STEADY, {"title": "cafe", "module": "broken"})
    assert master.wait_exit() == 1
    assert "refused: dq-cafe-0 could not start: the coffee is cold" in master.stderr()
    assert not master.status()
    told = [line for line in master.errors() if "RuntimeError" in line.get("exception", "")]
    assert [line["process"] for line in told] == ["dq-cafe-0"]


def test_a_worker_that_keeps_dying_is_replaced_after_growing_pauses(start: Start) -> None:
    master = start({"title": "weak", "module": "fainting"})
    starts = wait_until(lambda: len(master.notes()) >= 6 and master.notes())
    gaps_ms = [int(after) - int(before) for before, after in pairwise(starts)]
    # 0, 100, 200, 400, 800 ms and the time a start takes
    assert gaps_ms[3] > 400
    assert gaps_ms[4] > 800
    assert gaps_ms[4] > gaps_ms[1] + 500


def test_a_hung_loop_is_ended_and_its_stack_told(start: Start) -> None:
    limits = {"silence_s": 1.5, "idle_s": 0.1}
    master = start({"title": "sleepy", "module": "hanging"}, limits=limits).wait_up()
    old = master.pid_of("dq-sleepy-0")
    (master.data_dir / "hang").touch()
    wait_until(lambda: not is_alive(old))
    (master.data_dir / "hang").unlink()
    master.wait_replaced("dq-sleepy-0", old)
    stacks = [line.get("exception", "") for line in master.errors()]
    assert any("sleep_for_ever" in stack for stack in stacks)


def test_a_stopped_worker_is_killed(start: Start) -> None:
    limits = {"silence_s": 1.5, "last_words_s": 0.2, "idle_s": 0.1}
    master = start({"title": "steady", "module": "steady"}, limits=limits).wait_up()
    old = master.pid_of("dq-steady-0")
    os.kill(old, signal.SIGSTOP)
    wait_until(lambda: not is_alive(old))
    master.wait_replaced("dq-steady-0", old)


def test_workers_leave_within_2_s_when_the_master_is_killed(start: Start) -> None:
    master = start(
        STEADY, {"title": "hard", "module": "stubborn"}, {"title": "sleepy", "module": "hanging"}
    ).wait_up()
    pids = list(master.pids().values())
    (master.data_dir / "hang").touch()
    master.send(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids), timeout_s=2.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_a_stop_is_graceful_and_exits_0(start: Start, number: signal.Signals) -> None:
    master = start(STEADY, GREETER).wait_up()
    pids = list(master.pids().values())
    master.send(number)
    assert master.wait_exit() == 0
    assert not any(is_alive(pid) for pid in pids)
    assert sorted(master.notes()) == ["dq-steady-0 left", "dq-steady-1 left"]
    assert not master.status()
    assert master.errors() == []


def test_roles_leave_stage_by_stage(start: Start) -> None:
    roles = [
        {"title": title, "module": "steady", "stage": stage}
        for title, stage in (("last", 2), ("first", 0), ("middle", 1))
    ]
    master = start(*roles).wait_up()
    master.send(signal.SIGTERM)
    assert master.wait_exit() == 0
    assert master.notes() == ["dq-first-0 left", "dq-middle-0 left", "dq-last-0 left"]


def test_a_stop_waits_for_a_worker_that_is_busy(start: Start) -> None:
    master = start({"title": "busy", "module": "stubborn"}, STEADY).wait_up()
    master.send(signal.SIGTERM)
    wait_until(lambda: "dq-steady-0" not in master.pids() and "dq-steady-1" not in master.pids())
    assert master.state() == "stopping"
    assert is_alive(master.pid_of("dq-busy-0"))
    (master.data_dir / "leave").touch()
    assert master.wait_exit() == 0


def test_a_second_term_hurries(start: Start) -> None:
    role = {"title": "busy", "module": "stubborn"}
    master = start(role, limits={"hurry_s": 0.3}).wait_up()
    busy = master.pid_of("dq-busy-0")
    master.send(signal.SIGTERM)
    wait_until(lambda: master.state() == "stopping")
    master.send(signal.SIGTERM)
    assert master.wait_exit(3) == 0
    assert not is_alive(busy)


def test_a_worker_that_outstays_its_patience_is_killed(start: Start) -> None:
    master = start({"title": "busy", "module": "stubborn", "patience_s": 0.3}).wait_up()
    master.send(signal.SIGTERM)
    assert master.wait_exit(3) == 0


def test_ttin_and_ttou_add_and_remove_a_consumer(start: Start) -> None:
    master = start({"title": "consumer", "module": "steady"}).wait_up()
    master.send(signal.SIGTTIN)
    wait_until(lambda: "dq-consumer-1" in master.pids() and master.state() == "running")
    master.send(signal.SIGTTOU)
    wait_until(lambda: "dq-consumer-1" not in master.pids() and master.state() == "running")
    master.send(signal.SIGTTOU)
    master.send(signal.SIGTTIN)  # signals are taken in order: the last one stayed, then one more
    wait_until(lambda: "dq-consumer-1" in master.pids() and master.state() == "running")


def test_a_storm_of_signals_does_not_confuse_it(start: Start) -> None:
    master = start({"title": "consumer", "module": "steady"}, STEADY).wait_up()
    for _ in range(30):
        for number in (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD):
            master.send(number)
    master.send(signal.SIGHUP)
    master.send(signal.SIGTERM)
    assert master.wait_exit() == 0


def test_a_second_start_is_refused_and_names_the_pid(start: Start, tmp_path: Path) -> None:
    master = start(STEADY).wait_up()
    second = start(STEADY)
    assert second.wait_exit() == 1
    assert f"already runs on {master.data_dir} (pid {master.pid})" in second.stderr()
    assert master.wait_up().pids()


def test_of_many_starts_at_once_one_wins(start: Start) -> None:
    masters = [start(STEADY) for _ in range(8)]
    wait_until(lambda: [master.process.poll() for master in masters].count(1) == 7)
    (winner,) = (master for master in masters if master.process.returncode is None)
    winner.wait_up()
    losers = [master for master in masters if master is not winner]
    assert {loser.process.returncode for loser in losers} == {1}
    assert winner.stderr().count(f"(pid {winner.pid})") == 7


def test_a_start_right_after_a_kill_waits_for_the_old_workers(start: Start) -> None:
    first = start({"title": "hard", "module": "stubborn"}).wait_up()
    old = first.pid_of("dq-hard-0")
    first.send(signal.SIGKILL)
    first.wait_exit()
    assert is_alive(old)
    start(STEADY).wait_up()
    assert not is_alive(old)


def test_a_start_ends_an_old_worker_that_does_not_notice_its_masters_death(start: Start) -> None:
    first = start(STEADY).wait_up()
    old = first.pid_of("dq-steady-0")
    os.kill(old, signal.SIGSTOP)
    first.send(signal.SIGKILL)
    first.wait_exit()
    start(STEADY).wait_up()
    assert not is_alive(old)


def test_a_taken_port_is_refused_with_the_setting_to_change(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        master = start(STEADY, DQ_API_PORT=str(port))
        assert master.wait_exit() == 1
    assert f"127.0.0.1:{port} is taken by another program" in master.stderr()
    assert "DQ_API_PORT" in master.stderr()


def ask(port: int) -> int:
    """The pid of the greeter that answers."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(b"hello\n")
        return int(connection.makefile().readline())


def api_port(master: RunningMaster) -> int:
    return int(master.status()["addresses"]["api"].rpartition(":")[2])


def test_a_reload_replaces_the_workers_without_refusing_a_connection(start: Start) -> None:
    master = start(GREETER, STEADY).wait_up()
    port, old = api_port(master), master.pids()
    answers = [ask(port)]
    master.send(signal.SIGHUP)
    while answers[-1] == old["dq-greeter-0"] or master.state() != "running":
        answers.append(ask(port))
    assert api_port(master) == port
    assert set(answers) == {old["dq-greeter-0"], master.pid_of("dq-greeter-0")}
    assert not set(master.pids().values()) & set(old.values())
    assert master.errors() == []


def test_a_reload_with_broken_settings_keeps_the_workers_and_says_why(
    start: Start, tmp_path: Path
) -> None:
    master = start(STEADY).wait_up()
    old = master.pids()
    (tmp_path / "dq.toml").write_text("consumer = 3")
    master.send(signal.SIGHUP)
    wait_until(lambda: master.status()["reloads"] == 1)
    assert "did you mean consumers" in master.status()["reload_error"]
    assert master.pids() == old
    assert "did you mean consumers" in master.errors()[-1]["message"]


def test_a_reload_follows_changed_settings(start: Start, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.2", 0)) as two,
    ):
        first, second = one.getsockname()[1], two.getsockname()[1]
    config = tmp_path / "dq.toml"
    config.write_text(f"admin_port = {first}\nconsumers = 1")
    role = {"title": "consumer", "module": "steady", "count": "consumers"}
    master = start(role, DQ_ADMIN_PORT=None).wait_up()
    api = api_port(master)
    config.write_text(f"admin_host = '127.0.0.2'\nadmin_port = {second}\nconsumers = 3")
    master.send(signal.SIGHUP)
    wait_until(lambda: master.state() == "running" and len(master.pids()) == 3)
    assert master.status()["addresses"] == {
        "api": f"127.0.0.1:{api}",
        "admin": f"127.0.0.2:{second}",
    }
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first), 5)


def test_new_workers_that_cannot_start_leave_the_old_ones_in_place(start: Start) -> None:
    master = start({"title": "frail", "module": "fragile"}).wait_up()
    old = master.pid_of("dq-frail-0")
    (master.data_dir / "break").touch()
    master.send(signal.SIGHUP)
    wait_until(lambda: master.status()["reload_error"])
    assert "dq-frail-0 could not start: the cup is broken" in master.status()["reload_error"]
    assert is_alive(old)
    (master.data_dir / "break").unlink()
    wait_until(lambda: not is_alive(old))
    master.wait_replaced("dq-frail-0", old)


def test_a_role_that_must_be_alone_is_never_there_twice(start: Start) -> None:
    master = start({"title": "only", "module": "steady", "overlaps": False}).wait_up()
    old = master.pid_of("dq-only-0")
    master.send(signal.SIGHUP)
    most = 1
    while master.pid_of("dq-only-0") in (0, old) or master.state() != "running":
        names = [p["name"] for p in master.status().get("processes", [])]
        most = max(most, names.count("dq-only-0"))
    assert most == 1
    assert not is_alive(old)


def test_a_quiet_master_uses_no_time(start: Start) -> None:
    master = start(STEADY).wait_up()
    before = cpu_s(master.pid)
    time.sleep(2)
    assert cpu_s(master.pid) - before < 0.1


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
