"""data/status.json: who runs here, for `dq status`, the admin and whoever waits for a reload.

Written by the master alone, on each change and in one step; anybody may read it. It says what
was true at the last change: whether the master still lives is told by the lock, not by this.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dq.core.files import write_atomically

log = logging.getLogger(__name__)


class StatusFile:
    """The file as its only writer sees it."""

    def __init__(self, data_dir: Path) -> None:
        self._path = _path(data_dir)
        self._told: Mapping[str, Any] = {}

    def tell(self, status: Mapping[str, Any]) -> None:
        """Write it if it is news."""
        if status == self._told:
            return
        self._told = status
        text = json.dumps(status, indent=1, ensure_ascii=False) + "\n"
        try:
            write_atomically(self._path, text.encode(), sync=False)
        except OSError as error:  # a full disk: `dq status` is stale, the work goes on
            log.warning("can't write %s: %s", self._path, error)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


def read_status(data_dir: Path) -> dict[str, Any]:
    """The last status, or {} when dq never ran here or stopped in good order."""
    try:
        status = json.loads(_path(data_dir).read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return status if isinstance(status, dict) else {}


def _path(data_dir: Path) -> Path:
    return data_dir / "status.json"
