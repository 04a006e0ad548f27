"""Who runs dq where: each host's processes, kept in SQL by its dq-journal, for the overview.

A row a data folder, rewritten every few seconds; a host that stops in good order takes its own row
away, one that dies falls silent, which shows, and is forgotten after a day.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import msgspec

from dq.db.repository import Repository

EACH_S = 10.0
SILENT_MS = 30_000
"""Who has not said anything for so long is probably dead."""

FORGET_MS = 86_400_000
_PREFIX = "instance."


class ProcessLine(msgspec.Struct, frozen=True):
    """One process. `memory`: resident bytes, None when not known."""

    name: str
    pid: int
    started_ms: int
    restarts: int
    state: str
    memory: int | None = None


class Instance(msgspec.Struct, frozen=True):
    """One running dq. `reload_error`: why the last reload was refused, "" when it wasn't.
    `seen_ms`: when it said so, 0: this very moment."""

    host: str
    version: str = ""
    state: str = ""
    reload_error: str = ""
    processes: list[ProcessLine] = []
    seen_ms: int = 0


class Instances:
    """Every method raises DatabaseAway. `data_dir`: whose own row is not among the others."""

    def __init__(self, repository: Repository, host: str, data_dir: Path) -> None:
        self._repository = repository
        place = blake2b(str(data_dir.absolute()).encode(), digest_size=6).hexdigest()
        self._own = f"{_PREFIX}{host[:200]}.{place}"

    async def put(self, instance: Instance) -> None:
        """Say who runs here now."""
        await self._repository.put_setting(self._own, msgspec.to_builtins(instance))

    async def leave(self) -> None:
        """Nobody runs here any more."""
        await self._repository.delete_setting(self._own)

    async def others(self, now_ms: int) -> list[Instance]:
        """All but this one, by name; those that fell silent more than a day ago are forgotten."""
        found: list[Instance] = []
        for key, value in (await self._repository.list_settings(_PREFIX)).items():
            if key == self._own:
                continue
            instance = msgspec.convert(value, Instance)
            if now_ms - instance.seen_ms > FORGET_MS:
                await self._repository.delete_setting(key)
            else:
                found.append(instance)
        return found
