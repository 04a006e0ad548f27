"""Which nodes were added in the admin, and which take no new jobs: a file that every worker reads
when it starts, so that SQL may be away.

The nodes of DQ_REDIS_URLS are not in it; a node that is being drained is named, whoever named it
first. Changes count from the next reload on, for all workers together.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

_log = logging.getLogger(__name__)

FILE = "added_nodes.json"


class AddedNode(msgspec.Struct, frozen=True):
    """`title`: what people call it. `url` as in DQ_REDIS_URLS."""

    title: str
    url: str


class NodeFile(msgspec.Struct, frozen=True):
    """`draining`: name of a node -> since when, unix ms."""

    added: tuple[AddedNode, ...] = ()
    draining: dict[str, int] = {}


def read_node_file(path: Path) -> NodeFile:
    """What it holds. One that can't be read is told about and taken for empty: dq-redis-checker
    makes it anew from SQL, and has it counted."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeFile)
    except FileNotFoundError:
        return NodeFile()
    except (OSError, msgspec.DecodeError) as error:
        _log.error("%s can't be read; nodes added in the admin are left out: %s", path, error)
        return NodeFile()
