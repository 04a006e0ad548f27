"""Says in SQL, every few seconds, which processes of dq run on this host."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.pace import next_turn
from dq.db.instances import EACH_S, Instance, Instances, ProcessLine
from dq.db.repository import Repository
from dq.workers.procfs import memory_of
from dq.workers.status import read_status

_log = logging.getLogger(__name__)


def describe_instance(data_dir: Path, seen_ms: int = 0) -> Instance:
    """Who runs on this data folder now."""
    told = read_status(data_dir)
    processes = [
        ProcessLine(**process, memory=memory_of(process["pid"]))
        for process in told.get("processes", [])
    ]
    return Instance(
        socket.gethostname(),
        told.get("version", ""),
        told.get("state", ""),
        told.get("reload_error", ""),
        processes,
        seen_ms,
    )


class Presence:
    """Of the dq on the data folder `data_dir`."""

    def __init__(self, repository: Repository, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._instances = Instances(repository, socket.gethostname(), data_dir)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._instances.put(describe_instance(self._data_dir, clock.now_ms()))
            except DatabaseAway as error:
                _log.debug("who runs here is not told: %s", error.detail)
            await next_turn(EACH_S)

    async def end(self) -> None:
        """Unless a reload has another say so."""
        if read_status(self._data_dir).get("state") != "stopping":
            return
        try:
            await self._instances.leave()
        except DatabaseAway as error:
            _log.debug("the others see this host fall silent: %s", error.detail)
