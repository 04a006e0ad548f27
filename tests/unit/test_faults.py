"""Crash points: nothing happens unless one is armed, and then once, at the pass asked for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dq.core import faults
from dq.core.faults import POINTS, Struck, arm, reach

SOURCES = Path(faults.__file__).parents[1]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    arm("")
    yield
    arm("")


def test_unarmed_points_do_nothing() -> None:
    for point in POINTS:
        reach(point)


def test_a_plan_strikes_once_at_its_pass() -> None:
    arm("write.synced=raise:3")
    reach("write.synced")
    reach("write.applied")
    reach("write.synced")
    with pytest.raises(Struck, match=r"write\.synced"):
        reach("write.synced")
    reach("write.synced")


def test_several_plans_at_a_time() -> None:
    arm("write.synced=raise, lease.taken=raise:2")
    reach("lease.taken")
    for point in ("write.synced", "lease.taken"):
        with pytest.raises(Struck):
            reach(point)


@pytest.mark.parametrize("text", ["nowhere=die", "write.synced", "write.synced=burn", "=die"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want POINT="):
        arm(text)


@pytest.mark.parametrize(
    ("kind", "number"), [("die", signal.SIGKILL), ("hang", signal.SIGSTOP)], ids=["die", "hang"]
)
def test_the_environment_arms_a_process(kind: str, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from dq.core.faults import reach; reach('call.after')"],
        env={**os.environ, "DQ_FAULT": f"call.after={kind}"},
        stderr=subprocess.DEVNULL,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    seen = os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.WTERMSIG(status)
    assert seen == number
    if os.WIFSTOPPED(status):
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
    process.returncode = 0


def test_the_list_names_exactly_the_points_in_the_code() -> None:
    pattern = re.compile(r'reach\("([^"]+)"\)')
    found = {name for path in SOURCES.rglob("*.py") for name in pattern.findall(path.read_text())}
    assert found == set(POINTS)
