"""kill -9 for every process in turn, and for all at once, while jobs flow: nothing acknowledged is
lost, nothing is early, and at most what was in flight is called twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.e2e.flow import Flow
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.support import wait_until

IN_FLIGHT = 40


def check_times(receiver: Receiver, flows: list[Flow]) -> None:
    due = {id_: at for flow in flows for id_, at in flow.due.items()}
    early = [call.id for call in receiver.calls if call.at_ms < due[call.id]]
    assert not early, early[:5]


@pytest.mark.time_limit(120)
def test_every_process_is_killed_in_turn_while_4000_jobs_flow(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path, DQ_CONCURRENCY=str(IN_FLIGHT)) as dq:
        receiver.delay_s = 0.005
        dq.topic("t", callback=receiver.url)
        flows = [Flow(dq, "t", 1000, f"{name}-", 2.0) for name in "abcd"]
        victims = ["dq-consumer-0", "dq-timer-0", "dq-server-0", "dq-journal", "dq-valkey"]
        for number, name in enumerate(victims):
            wanted = 600 * (number + 1)
            wait_until(lambda w=wanted: sum(len(f.acknowledged) for f in flows) >= w, 40)
            dq.kill(name)
        for flow in flows:
            flow.finish()
        wanted_ids = set().union(*(flow.acknowledged for flow in flows))
        wait_until(lambda: wanted_ids <= set(receiver.ids()), 30, "every job called back")
        assert len(wanted_ids) == 4000
        check_times(receiver, flows)
        repeated = {id_: n for id_, n in receiver.ids().items() if n > 1}
        assert sum(repeated.values()) - len(repeated) <= IN_FLIGHT, repeated
        wait_until(lambda: all(dq.state("t", id_) == "done" for id_ in ("a-0", "d-999")), 10)
        assert dq.stop() == 0


@pytest.mark.time_limit(60)
def test_a_killed_consumers_jobs_are_called_again_within_2_s(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path, DQ_CONSUMERS="1") as dq:
        dq.topic("t", callback=receiver.url, timeout=60)
        receiver.delay_s = 3600
        for number in range(100):
            assert dq.push("t", str(number)).status == 201
        wait_until(lambda: len(receiver.calls) == 100, 10)
        receiver.delay_s = 0
        began = time.monotonic()
        dq.kill("dq-consumer-0")
        wait_until(lambda: set(receiver.ids().values()) == {2}, 10)
        assert time.monotonic() - began < 2
        wait_until(lambda: dq.state("t", "99") == "done", 10)


@pytest.mark.time_limit(120)
def test_everything_is_killed_and_started_again(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path, DQ_CONCURRENCY=str(IN_FLIGHT)) as dq:
        dq.topic("t", callback=receiver.url)
        flows = [Flow(dq, "t", 400, f"{name}-", 3.0) for name in "ab"]
        for number in range(2):
            wanted = 250 * (number + 1)
            wait_until(lambda w=wanted: sum(len(f.acknowledged) for f in flows) >= w, 40)
            dq.kill_all()
            dq.start()
        for flow in flows:
            flow.finish()
        wanted_ids = set().union(*(flow.acknowledged for flow in flows))
        wait_until(lambda: wanted_ids <= set(receiver.ids()), 30, "every job called back")
        check_times(receiver, flows)
        repeats = sum(receiver.ids().values()) - len(receiver.ids())
        assert repeats <= 2 * 2 * IN_FLIGHT


@pytest.mark.time_limit(60)
def test_killing_the_master_ends_all_within_2_s_and_a_second_start_is_refused(
    tmp_path: Path,
) -> None:
    with Program(tmp_path) as dq:
        pids = dq.pids()
        assert {"dq-master", "dq-valkey", "dq-server-0", "dq-journal"} <= set(pids)
        second = Program(tmp_path)
        with pytest.raises(AssertionError, match=str(pids["dq-master"])):
            second.start()
        os.kill(pids["dq-master"], 9)
        began = time.monotonic()
        wait_until(lambda: not any(is_alive(pid) for pid in pids.values()), 5)
        assert time.monotonic() - began < 2
        assert dq.process is not None
        dq.process.wait()


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
