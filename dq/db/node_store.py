"""The nodes that were added or are drained, in SQL for all hosts and in a file for the workers.

SQL is the truth. A database that was made anew gets what the file has instead of emptying it: a
node that is left out keeps its jobs to itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from dq.core.files import write_atomically
from dq.core.node_file import FILE, NodeFile, read_node_file
from dq.db.repository import Repository

_KEY = "nodes"


class NodeStore:
    """Of the data folder `folder`. Every method raises DatabaseAway."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self._repository = repository
        self._path = folder / FILE

    async def read(self) -> NodeFile:
        """What is saved."""
        value = await self._repository.get_setting(_KEY)
        return NodeFile() if value is None else msgspec.convert(value, NodeFile)

    async def put(self, nodes: NodeFile) -> None:
        """Save it, and have this host's workers find it at their next start."""
        await self._repository.put_setting(_KEY, msgspec.to_builtins(nodes))
        await self._write(nodes)

    async def sync(self) -> NodeFile:
        """Bring the file to what SQL has, which is given back."""
        here = await asyncio.to_thread(read_node_file, self._path)
        value = await self._repository.get_setting(_KEY)
        if value is None:
            if here != NodeFile():
                await self._repository.put_setting(_KEY, msgspec.to_builtins(here))
            return here
        wanted = msgspec.convert(value, NodeFile)
        if wanted != here:
            await self._write(wanted)
        return wanted

    async def _write(self, nodes: NodeFile) -> None:
        await asyncio.to_thread(write_atomically, self._path, msgspec.json.encode(nodes))
