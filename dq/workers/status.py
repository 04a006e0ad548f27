"""data/status.json: who runs here, for `dq status`, the admin and whoever waits for a reload.

Written by the master alone, on each change and in one step; anybody may read it. It says what
was true at the last change: whether the master still lives is told by the lock, not by this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dq.core.files import write_atomically


def status_file(data_dir: Path) -> Path:
    return data_dir / "status.json"


def write_status(data_dir: Path, status: dict[str, Any]) -> None:
    text = json.dumps(status, indent=1, ensure_ascii=False) + "\n"
    write_atomically(status_file(data_dir), text.encode(), sync=False)


def read_status(data_dir: Path) -> dict[str, Any]:
    """The last status, or {} when dq never ran here or stopped in good order."""
    try:
        status = json.loads(status_file(data_dir).read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return status if isinstance(status, dict) else {}


def clear_status(data_dir: Path) -> None:
    status_file(data_dir).unlink(missing_ok=True)
