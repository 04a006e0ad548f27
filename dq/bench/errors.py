"""When a bench can't go on: whatever it measured would be wrong."""

from __future__ import annotations

from pathlib import Path

from dq.core.errors import DqError

_LINES = 15


class BenchFailed(DqError):
    """The text says what happened."""


def last_words(folder: Path) -> str:
    """The end of what the bench's children and its dq said on stderr."""
    lines = (folder / "output").read_text("utf-8", "replace").splitlines()
    return "\n".join(lines[-_LINES:])
