"""Faults under load: each by itself, then at random, several at a time.

DQ_TEST_CHAOS_ROUNDS=50 strikes 50 times with each, instead of once with five of them, and makes 50
rounds at random instead of one; only then the clock is stepped. DQ_TEST_CHAOS_SEED chooses other
ones.
"""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.powercut import compile_shim, compiler
from tests.chaos.report import write_row
from tests.chaos.scene import Scene, rounds, seed, time_limit_s
from tests.chaos.traffic import Traffic, answer
from tests.e2e.receiver import Receiver
from tests.support import wait_until

IN_FLIGHT = 40


@pytest.mark.time_limit(time_limit_s(150, 120))
def test_each_fault_by_itself(tmp_path: Path) -> None:
    rng = random.Random(seed())
    with Receiver(answer) as receiver, Scene(tmp_path, DQ_CONCURRENCY=str(IN_FLIGHT)) as scene:
        receiver.delay_s = 0.005
        scene.dq.topic("t", callback=receiver.url)
        kinds = KINDS * rounds(0) or rng.sample(KINDS, 5)
        rng.shuffle(kinds)
        traffic = Traffic(scene.dq, receiver, "t", seed=seed(), ahead_s=1.0, pause_s=0.004)
        for kind in kinds:
            traffic.wait_pushed(rng.randint(50, 150))
            fault = traffic.fault(kind.name, is_ours=kind.is_ours)
            kind.strike(scene, rng)
            fault.end()
            traffic.wait_pushed(20)
            traffic.wait_caught_up()
        traffic.stop()
        traffic.wait_delivered()
        found = traffic.reckon()
        write_row("each fault by itself", len(kinds), found)
        assert (found.lost, found.early, found.resurrected) == ([], [], [])
        assert found.duplicates <= IN_FLIGHT * sum(kind.is_ours for kind in kinds)


@pytest.mark.time_limit(time_limit_s(120, 40))
def test_faults_at_random_several_at_a_time(tmp_path: Path) -> None:
    rng = random.Random(seed())
    with Receiver(answer) as receiver, Scene(tmp_path, DQ_CONCURRENCY=str(IN_FLIGHT)) as scene:
        receiver.delay_s = 0.005
        scene.dq.topic("t", callback=receiver.url)
        traffic = Traffic(scene.dq, receiver, "t", seed=seed(), ahead_s=1.0, pause_s=0.004)
        for _ in range(rounds(1)):
            traffic.wait_pushed(rng.randint(50, 150))
            kinds = rng.sample(KINDS, 3)
            names = ", ".join(kind.name for kind in kinds)
            fault = traffic.fault(names, is_ours=any(kind.is_ours for kind in kinds))
            for kind in kinds:
                kind.strike(scene, rng)
                time.sleep(rng.random() * 0.3)
            fault.end()
            traffic.wait_pushed(20)
            traffic.wait_caught_up()
        traffic.stop()
        traffic.wait_delivered()
        found = traffic.reckon()
        write_row("three faults at random, at a time", rounds(1), found)
        assert (found.lost, found.early, found.resurrected) == ([], [], [])


@pytest.mark.time_limit(time_limit_s(90, 20))
@pytest.mark.skipif(not rounds(0), reason="takes long; set DQ_TEST_CHAOS_ROUNDS")
@pytest.mark.parametrize("step_s", [20, -20])
def test_the_clock_is_stepped_and_comes_back(tmp_path: Path, step_s: int) -> None:
    """For all of dq and its node, as by a bad time server; what fails meanwhile is called again by
    the clock of that moment."""
    if compiler() is None:
        pytest.skip("a C compiler builds the clock shim; install gcc and libc6-dev")
    file = tmp_path / "step"
    file.write_bytes(struct.pack("=q", 0))
    shim = compile_shim(Path(__file__).with_name("clockstep.c"), tmp_path)
    given: Any = {"LD_PRELOAD": str(shim), "DQ_CLOCKSTEP_FILE": str(file)}
    with Receiver(answer) as receiver, Scene(tmp_path, None, **given) as scene:
        scene.dq.topic("t", callback=receiver.url)
        traffic = Traffic(
            scene.dq,
            receiver,
            "t",
            seed=seed(),
            ahead_s=1.0,
            pause_s=0.004,
            has_cancels=False,  # what is due at once by the stepped clock can't be cancelled
        )
        for _ in range(rounds(1)):
            traffic.wait_pushed(100)
            fault = traffic.fault(f"clock stepped by {step_s} s", is_ours=False)
            with file.open("r+b") as opened:
                opened.write(struct.pack("=q", step_s * 1_000_000_000))
            traffic.wait_pushed(100)
            with file.open("r+b") as opened:
                opened.write(struct.pack("=q", 0))
            fault.end()
            traffic.wait_pushed(100)
            wait_until(lambda: not traffic.missing(overdue_ms=500), 40, "nothing is late")
        traffic.stop()
        traffic.wait_delivered()
        found = traffic.reckon()
        # What was pushed meanwhile with a time that had passed by that clock was due at once.
        faults = [(one.began_ms, one.over_ms) for one in traffic.faults]
        found.early = [
            id_
            for id_ in found.early
            if not any(
                traffic.begun[id_] <= over and began <= traffic.acknowledged[id_]
                for began, over in faults
            )
        ]
        write_row(f"clock stepped by {step_s} s and back", rounds(1), found)
        assert (found.lost, found.early, found.resurrected) == ([], [], [])
        assert found.duplicates == 0
