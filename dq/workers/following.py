"""Nodes added or drained in the admin, on whatever host: dq-redis-checker brings them from SQL into
the file, and has its master replace the workers when that differs from what they started with.

Asked for once for each state of the file: a reload that is refused is not asked for again.
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
from dq.db.node_store import NodeStore
from dq.workers.status import read_status

_log = logging.getLogger(__name__)

SYNC_S = 1.0


async def bring_nodes(
    store: NodeStore, begun_with: NodeFile, data_dir: Path, reload: Callable[[Path], None]
) -> None:
    """Keep the file equal to SQL, and the workers to the file. Until cancelled."""
    known = begun_with
    while True:
        try:
            wanted = await store.sync()
        except DatabaseAway as error:
            _log.debug("nodes are those last known: %s", error.detail)
            wanted = await asyncio.to_thread(read_node_file, data_dir / FILE)
        if wanted != known:
            known = wanted
            _log.warning("the nodes have changed in the admin; the workers are replaced")
            reload(data_dir)
        await asyncio.sleep(SYNC_S)


def reload_master(data_dir: Path) -> None:
    """HUP, as `dq reload` does; to nobody but the master whose child this is."""
    processes = read_status(data_dir).get("processes", [])
    master = next((one["pid"] for one in processes if one["name"] == "dq-master"), 0)
    if master and master == os.getppid():
        os.kill(master, signal.SIGHUP)
