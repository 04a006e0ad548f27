"""Power cuts under load: of everything, of the node alone, and, as a control, on a lying disk.

DQ_TEST_CHAOS_ROUNDS=50 makes so many rounds of each instead of 2; DQ_TEST_CHAOS_SEED chooses other
ones. Needs a C compiler (gcc and libc6-dev), else it is skipped.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.powercut import Mode
from tests.chaos.report import write_row
from tests.chaos.scene import Scene, rounds, seed, time_limit_s
from tests.chaos.traffic import Traffic, answer
from tests.e2e.receiver import Receiver
from tests.support import wait_until

IN_FLIGHT = 40
TRIES = 5
MODES = [Mode.STRICT, Mode.MIXED]


@pytest.mark.time_limit(time_limit_s(90, 30))
def test_everything_loses_its_power(tmp_path: Path, shim: Path) -> None:
    rng = random.Random(seed())
    with (
        Receiver(answer) as receiver,
        Scene(tmp_path, shim, DQ_CONCURRENCY=str(IN_FLIGHT)) as scene,
    ):
        scene.dq.topic("t", callback=receiver.url)
        traffic = Traffic(scene.dq, receiver, "t", seed=seed(), ahead_s=2.0)
        for number in range(rounds(2)):
            traffic.wait_pushed(rng.randint(150, 400))
            fault = traffic.fault("power cut of everything", is_ours=True)
            scene.cut_all(MODES[number % 2], rng)
            fault.end()
            scene.dq.start()
        traffic.wait_pushed(100)
        traffic.stop()
        traffic.wait_delivered()
        found = traffic.reckon()
        write_row("power cut of everything", rounds(2), found)
        assert (found.lost, found.early, found.resurrected) == ([], [], [])


@pytest.mark.time_limit(time_limit_s(90, 30))
def test_the_node_alone_loses_its_power(tmp_path: Path, shim: Path) -> None:
    rng = random.Random(seed())
    with Receiver(answer) as receiver, Scene(tmp_path, shim) as scene:
        scene.dq.topic("t", callback=receiver.url)
        traffic = Traffic(scene.dq, receiver, "t", seed=seed(), ahead_s=2.0)
        for number in range(rounds(2)):
            traffic.wait_pushed(rng.randint(150, 400))
            traffic.fault("power cut of the node", is_ours=False)
            scene.cut_valkey(MODES[number % 2], rng)
        traffic.wait_pushed(100)
        traffic.stop()
        traffic.wait_delivered()
        found = traffic.reckon()
        write_row("power cut of the node", rounds(2), found)
        assert (found.lost, found.early, found.resurrected) == ([], [], [])
        assert found.duplicates == 0


@pytest.mark.time_limit(120)
def test_on_a_disk_that_lies_jobs_are_lost(tmp_path: Path, shim: Path) -> None:
    """The control: with the log's syncs swallowed the same cut must lose what was acknowledged. How
    much depends on when the node last synced by itself, so there are several tries."""
    rng = random.Random(seed())
    with Receiver(answer) as receiver, Scene(tmp_path, shim, lies=True) as scene:
        scene.dq.topic("t", callback=receiver.url)
        for number in range(TRIES):
            receiver.calls.clear()
            traffic = Traffic(scene.dq, receiver, "t", seed=seed() + number, ahead_s=4.0)
            traffic.wait_pushed(rng.randint(150, 400))
            traffic.fault("power cut, a disk that lies", is_ours=True)
            scene.cut_all(Mode.STRICT, rng)
            scene.dq.start()
            traffic.stop()
            wait_until(
                lambda t=traffic: is_unknown(scene, t.missing()), 40, "what is not lost came"
            )
            found = traffic.reckon()
            if found.lost:
                break
        write_row("the same on a disk that lies (control)", number + 1, found)
        assert found.lost


def is_unknown(scene: Scene, ids: list[str]) -> bool:
    """Whether nobody knows any of these jobs any more."""
    return all(scene.dq.state("t", id_) is None for id_ in ids)
