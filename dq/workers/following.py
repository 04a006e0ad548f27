"""What people change on whatever host, topics, API tokens and nodes, is brought here: once a second
dq-redis-checker copies what has changed in SQL into the files that the other processes follow.

For nodes that were added or drained in the admin it has its master replace the workers, when the
file differs from what they started with; once for each state of the file: a reload that is refused
is not asked for again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from dq.core.errors import DatabaseAway
from dq.core.node_file import FILE, NodeFile, read_node_file
from dq.core.pace import next_turn
from dq.db.changes import Changes
from dq.db.node_store import NodeStore
from dq.db.token_book import TokenBook
from dq.db.topic_book import TopicBook
from dq.workers.status import read_status

_log = logging.getLogger(__name__)

SYNC_S = 1.0


class Following:
    """Keeps the files of `data_dir` equal to SQL, and the workers to the file of nodes."""

    def __init__(
        self,
        changes: Changes,
        topics: TopicBook,
        tokens: TokenBook,
        nodes: NodeStore,
        begun_with: NodeFile,
        data_dir: Path,
        reload: Callable[[Path], None],
    ) -> None:
        self._changes = changes
        self._topics = topics
        self._tokens = tokens
        self._nodes = nodes
        self._known = begun_with
        self._data_dir = data_dir
        self._files = [str(data_dir / name) for name in ("topics.json", "tokens.json", FILE)]
        self._reload = reload
        self._seen: object = None
        self._has_schema = False  # dq-journal makes it, and tells if it can't
        self._is_away_told = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await next_turn(SYNC_S)

    async def look(self) -> None:
        """Bring what has changed in SQL, or in a file, since the last look."""
        try:
            mark = (await self._changes.mark(), [_state_of(file) for file in self._files])
            self._has_schema = True
            if mark != self._seen:
                await self._bring()
                self._seen = mark
        except DatabaseAway as error:
            self._seen = None
            if self._has_schema and not self._is_away_told:
                self._is_away_told = True
                _log.error("topics are those last known, SQL is away: %s", error.detail)
            self._follow(await asyncio.to_thread(read_node_file, self._data_dir / FILE))
        else:
            self._is_away_told = False

    async def _bring(self) -> None:
        await self._topics.sync()
        await self._tokens.sync()
        self._follow(await self._nodes.sync())

    def _follow(self, wanted: NodeFile) -> None:
        if wanted != self._known:
            self._known = wanted
            _log.warning("the nodes have changed in the admin; the workers are replaced")
            self._reload(self._data_dir)


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def reload_master(data_dir: Path) -> None:
    """HUP, as `dq reload` does; to nobody but the master whose child this is."""
    processes = read_status(data_dir).get("processes", [])
    master = next((one["pid"] for one in processes if one["name"] == "dq-master"), 0)
    if master and master == os.getppid():
        os.kill(master, signal.SIGHUP)
