"""A power cut for a folder: what no sync had promised is taken away again.

Programs run under powercut.c, which notes what a cut could undo. After they were killed,
`PowerCut.cut` brings the folder to a state in which a disk may come back:
  - bytes beyond the size at a file's last sync go, overwritten ones are as they were at that sync
  - a file that was never synced goes (its name is safe once the file itself is synced, as on ext4,
    XFS and btrfs), or it is there without its content
  - names changed by rename and unlink since their folder's last sync change back, latest first
STRICT takes all of it. MIXED takes a part, chosen by the seed, as a kernel that wrote some pages
back in time: names up to a point, each overwritten page or not, a piece of a tail, zeros in it.
Shared memory (mmap) never counts as synced.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import stat
import struct
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SOURCE = Path(__file__).with_name("powercut.c")
_NOTE = struct.Struct("<IIQQQQII")
_MAGIC = 0xD951C0DE
_WRITE, _TRUNCATE, _BEGIN, _SYNCED, _RENAME, _UNLINK, _CUT = range(1, 8)
_SIZE = struct.Struct("<QQ")


class Mode(Enum):
    """How much of what was not synced a cut takes."""

    STRICT = "strict"
    MIXED = "mixed"


def compiler() -> str | None:
    """The C compiler that the shims need, None where there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def compile_shim(source: Path, folder: Path) -> Path:
    """Build a preloadable library; its path. Raises CalledProcessError."""
    built = folder / source.with_suffix(".so").name
    words = [compiler() or "cc", "-O2", "-fPIC", "-shared", "-o", str(built), str(source), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return built


@dataclass(frozen=True, slots=True)
class _Note:
    kind: int
    inode: int
    at: int
    extra: int
    first: bytes
    second: bytes

    @property
    def path(self) -> str:
        return os.fsdecode(self.first)

    @property
    def new_path(self) -> str:
        return os.fsdecode(self.second)


@dataclass
class Taken:
    """What a cut did: for a person, and to see that it did something."""

    bytes_cut: int = 0
    bytes_undone: int = 0
    files_gone: int = 0
    files_emptied: int = 0
    names_undone: int = 0
    by_file: Counter[str] = field(default_factory=Counter)


class PowerCut:
    """Notes and cuts of everything below `root`; `vault` is beside it, on the same file system."""

    def __init__(self, shim: Path, root: Path, vault: Path) -> None:
        self.root = root.resolve()
        self.vault = vault.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        self.vault.mkdir(parents=True, exist_ok=True)
        self._shim = shim
        self._events = self.vault / "events"
        self._new_boot()

    def environ(self, lie: Path | None = None) -> dict[str, str]:
        """For a program that is to run under it; `lie`: a folder whose syncs do nothing."""
        given = {
            "LD_PRELOAD": str(self._shim),
            "DQ_POWERCUT_ROOT": str(self.root),
            "DQ_POWERCUT_VAULT": str(self.vault),
        }
        return given | ({"DQ_POWERCUT_LIE": str(lie.resolve())} if lie else {})

    def cut(
        self,
        folder: Path | None = None,
        mode: Mode = Mode.STRICT,
        rng: random.Random | None = None,
    ) -> Taken:
        """Cut the power of `folder` (of everything); nothing may be writing below it any more."""
        target = (folder or self.root).resolve()
        notes = self._notes()
        work = _Cut(target, self.vault, notes, mode, rng or random.Random(0))
        work.undo_names()
        work.undo_contents()
        if target == self.root:
            for path in self.vault.iterdir():
                path.unlink()
            self._new_boot()
        self._settle(target)
        return work.taken

    def _new_boot(self) -> None:
        (self.vault / "boot_id").write_text(f"{secrets.token_hex(16)}\n")

    def _settle(self, folder: Path) -> None:
        """What stands below `folder` now is on the disk."""
        sizes = b"".join(_SIZE.pack(one.st_ino, one.st_size) for _, one in _files(folder))
        first = os.fsencode(folder)
        head = _NOTE.pack(_MAGIC, _CUT, 0, 0, 0, 0, len(first), len(sizes))
        with self._events.open("ab") as file:
            file.write(head + first + sizes)

    def _notes(self) -> list[_Note]:
        data = self._events.read_bytes() if self._events.exists() else b""
        notes, at, mark = [], 0, _MAGIC.to_bytes(4, "little")
        while (at := data.find(mark, at)) >= 0 and at + _NOTE.size <= len(data):
            _, kind, inode, pos, extra, _, first, second = _NOTE.unpack_from(data, at)
            start, middle = at + _NOTE.size, at + _NOTE.size + first
            follows = data[middle + second : middle + second + 4]
            if middle + second > len(data) or follows not in (mark, b""):
                at += 1  # torn: its writer was killed in the middle of it
                continue
            notes.append(_Note(kind, inode, pos, extra, data[start:middle], data[middle:][:second]))
            at = middle + second
        return notes


class _Cut:
    """One cut under way."""

    def __init__(
        self, folder: Path, vault: Path, notes: list[_Note], mode: Mode, rng: random.Random
    ) -> None:
        self._folder = folder
        self._vault = vault
        self._notes = notes
        self._is_strict = mode is Mode.STRICT
        self._rng = rng
        self.taken = Taken()

    def undo_names(self) -> None:
        """Renames and unlinks that no sync of their folder made safe, the latest first."""
        pending = self._pending_names()
        kept = 0
        if not self._is_strict:
            kept = self._rng.choice([0, len(pending), self._rng.randint(0, len(pending))])
        for note in reversed(pending[kept:]):
            if note.kind == _RENAME:
                self._undo_rename(note)
            else:
                self._give_back(note.path, note.inode)

    def _pending_names(self) -> list[_Note]:
        synced_at: dict[str, int] = {}
        began: dict[tuple[int, int], int] = {}
        changes: list[tuple[int, _Note]] = []
        for index, note in enumerate(self._notes):
            if note.kind == _BEGIN:
                began[note.inode, note.at] = index
            elif note.kind == _SYNCED and note.extra:
                synced_at[note.path] = began.get((note.inode, note.at), index)
            elif note.kind == _CUT:
                changes = [(at, one) for at, one in changes if not _is_in(one.path, note.path)]
            elif note.kind in (_RENAME, _UNLINK) and _is_in(note.path, str(self._folder)):
                changes.append((index, note))
        return [one for at, one in changes if synced_at.get(_parent(one), -1) < at]

    def _undo_rename(self, note: _Note) -> None:
        old, new = Path(note.path), Path(note.new_path)
        if not new.exists() or new.stat().st_ino != note.inode or old.exists():
            return
        old.parent.mkdir(parents=True, exist_ok=True)
        new.rename(old)
        self.taken.names_undone += 1
        if note.at:
            self._give_back(note.new_path, note.at)

    def _give_back(self, name: str, inode: int) -> None:
        kept, path = self._vault / f"inode-{inode}", Path(name)
        if kept.exists() and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(kept, path)
            self.taken.names_undone += 1

    def undo_contents(self) -> None:
        """Each file as at its last sync."""
        changes, synced = self._contents()
        for path, status in list(_files(self._folder)):
            after, size = synced.get(status.st_ino, (-1, -1))
            if after < 0:
                self._undo_file(path, status.st_size)
            else:
                undo = [note for index, note in changes[status.st_ino] if index > after]
                self._undo_changes(path, undo, size)

    def _contents(self) -> tuple[dict[int, list[tuple[int, _Note]]], dict[int, tuple[int, int]]]:
        changes: dict[int, list[tuple[int, _Note]]] = defaultdict(list)
        synced: dict[int, tuple[int, int]] = {}
        began: dict[tuple[int, int], tuple[int, int]] = {}
        for index, note in enumerate(self._notes):
            if note.kind in (_WRITE, _TRUNCATE):
                changes[note.inode].append((index, note))
            elif note.kind == _BEGIN:
                began[note.inode, note.at] = (index, note.extra)
            elif note.kind == _SYNCED and (note.inode, note.at) in began:
                synced[note.inode] = began[note.inode, note.at]
            elif note.kind == _CUT:
                synced |= {inode: (index, size) for inode, size in _SIZE.iter_unpack(note.second)}
        return changes, synced

    def _undo_file(self, path: Path, size: int) -> None:
        """One that was never synced."""
        fate = "gone" if self._is_strict else self._rng.choice(["gone", "empty", "zeros", "whole"])
        if fate == "gone":
            path.unlink()
            self.taken.files_gone += 1
        elif fate in ("empty", "zeros"):
            os.truncate(path, 0)
            os.truncate(path, size if fate == "zeros" else 0)
            self.taken.files_emptied += 1

    def _undo_changes(self, path: Path, undo: list[_Note], size: int) -> None:
        status = path.stat()
        if not undo and status.st_size <= size:
            return
        with path.open("r+b") as file:
            file.seek(size)
            tail = b"" if any(note.kind == _TRUNCATE for note in undo) else file.read()
            for note in reversed(self._chosen(undo)):
                file.seek(note.at)
                file.write(note.first)
                self.taken.bytes_undone += len(note.first)
            file.truncate(size)
            file.seek(size)
            left = self._left_of(tail)
            file.write(left)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.taken.bytes_cut += len(tail) - len(left)
        self.taken.by_file[path.suffix or path.name] += len(tail) - len(left)

    def _chosen(self, undo: list[_Note]) -> list[_Note]:
        if self._is_strict or any(note.kind == _TRUNCATE for note in undo):
            return undo
        return [note for note in undo if self._rng.random() < 0.5]

    def _left_of(self, tail: bytes) -> bytes:
        """The piece of an unsynced tail that reached the disk, or zeros where it should be."""
        if self._is_strict or self._rng.random() < 0.5:
            return b""
        piece = tail[: self._rng.randint(0, len(tail))]
        return (
            piece if self._rng.random() < 0.7 else piece[: len(piece) // 2].ljust(len(piece), b"\0")
        )


def _parent(note: _Note) -> str:
    return os.path.dirname(note.new_path if note.kind == _RENAME else note.path)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found.append((path, status))
    return found
