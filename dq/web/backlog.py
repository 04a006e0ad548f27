"""How many jobs there were, minute by minute, for the overview's charts.

dq-admin looks once a minute and keeps the last hours in a small file, so that a reload costs
nothing; minutes in which it did not run are gaps. Counts of what was pushed and delivered are in
SQL (dq/db/counts.py); how many wait is only known in the moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from dq.queue.inspect import Inspector, NodeLook
from dq.web.kept import Kept

MINUTE_MS = 60_000
KEEP = 180
_LOOK_S = 5.0
_log = logging.getLogger(__name__)


class Sample(msgspec.Struct, frozen=True):
    """Jobs on all nodes that answered. `waiting`: due and not begun yet."""

    at_ms: int
    waiting: int
    unfinished: int


class _File(msgspec.Struct, frozen=True):
    samples: list[Sample] = []


def sample_of(nodes: list[NodeLook], at_ms: int) -> Sample | None:
    """None while no node answers."""
    if not any(not node.away for node in nodes):
        return None
    waiting = sum(node.total("ready") for node in nodes)
    return Sample(at_ms, waiting, sum(node.total("jobs") for node in nodes))


class Backlog:
    """The samples of one data folder."""

    def __init__(self, path: Path, inspector: Inspector, now_ms: Callable[[], int]) -> None:
        self._kept = Kept(path, _File)
        self._inspector = inspector
        self._now_ms = now_ms

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except OSError as error:
                _log.warning("how many jobs wait can't be written: %s", error)
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Take the sample of this minute unless it is there. Raises OSError."""
        minute_ms = self._now_ms() // MINUTE_MS * MINUTE_MS
        samples = self._kept.read().samples
        if samples and samples[-1].at_ms == minute_ms:
            return
        sample = sample_of(await self._inspector.look(), minute_ms)
        if sample is not None:
            younger = [one for one in samples if one.at_ms < minute_ms]
            self._kept.write(_File([*younger[1 - KEEP :], sample]), sync=False)

    def per_minute(self, first_ms: int, steps: int) -> list[Sample | None]:
        """One for each minute from `first_ms` on; None where nobody looked."""
        known = {sample.at_ms: sample for sample in self._kept.read().samples}
        return [known.get(first_ms + step * MINUTE_MS) for step in range(steps)]
