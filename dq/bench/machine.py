"""Which machine it is: what the kernel tells of its processor, memory and file systems."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from dq import __version__
from dq.core.clock import now_ms, rfc3339

_PROC = Path("/proc")
_STAT_CPU = slice(11, 15)  # user, system; of the process and of its children that were reaped


class Machine(msgspec.Struct, frozen=True):
    """`load`: runnable processes over the last minute, before the bench began. `disk`: the kind of
    file system that the data was on."""

    date: str
    dq: str
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    valkey: str
    disk: str
    load: float


def look_at_machine(folder: Path, valkey: str, load: float) -> Machine:
    """`valkey`: its version; data goes to `folder`."""
    return Machine(
        date=rfc3339(now_ms())[:16] + "Z",
        dq=__version__,
        cpu=_field("cpuinfo", "model name") or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=int(_field("meminfo", "MemTotal").split()[0]) * 1024,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        valkey=valkey,
        disk=file_system_of(folder),
        load=load,
    )


def file_system_of(folder: Path) -> str:
    """Its kind, as /proc/mounts calls it: ext4, overlay, tmpfs …"""
    found, longest = "", -1
    for line in (_PROC / "mounts").read_text().splitlines():
        where, kind = line.split()[1:3]
        if folder.resolve().is_relative_to(where) and len(where) >= longest:
            found, longest = kind, len(where)
    return found


def cpu_of(pid: int) -> float:
    """CPU-seconds of a process so far; raises OSError when it is gone."""
    stat = (_PROC / str(pid) / "stat").read_text()
    ticks = stat.rpartition(")")[2].split()[_STAT_CPU]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _field(file: str, name: str) -> str:
    for line in (_PROC / file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
