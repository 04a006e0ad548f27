"""Masters that a test starts are ended with it, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.running import RunningMaster

Start = Callable[..., RunningMaster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(*roles, limits=…, folder=…, **env): a running master on a folder of this test."""
    started: list[RunningMaster] = []

    def start_one(*roles: dict[str, Any], folder: Path = tmp_path, **rest: Any) -> RunningMaster:
        started.append(RunningMaster(folder, *roles, **rest))
        return started[-1]

    yield start_one
    for running in reversed(started):
        running.end()
