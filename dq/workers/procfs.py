"""What the kernel tells about a process: alive, name, folder, memory.

Read from /proc, so that no package is needed; where there is no /proc only `is_alive` knows.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def is_alive(pid: int) -> bool:
    """A zombie is dead: it waits for its parent only."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return not _PROC.joinpath("self").exists()
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def name_of(pid: int) -> str:
    """The kernel's name of a process, at most 15 characters; empty when it is gone."""
    try:
        return (_PROC / str(pid) / "comm").read_text().rstrip("\n")
    except OSError:
        return ""


def memory_of(pid: int) -> int | None:
    """Resident memory in bytes."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def processes_in(folder: Path, name: str) -> list[int]:
    """Pids of the living processes of that name whose working folder is `folder`."""
    found = []
    for entry in _PROC.glob("[0-9]*"):
        pid = int(entry.name)
        try:
            is_here = name_of(pid) == name and os.path.samefile(entry / "cwd", folder)
        except OSError:
            continue
        if is_here and is_alive(pid):
            found.append(pid)
    return found
