"""A writer's log: the truth of its last minutes, made before anything is applied or answered.

A log belongs to one process and is named by 64 fresh random bits, never used again: a restart
makes a new one. It is a folder of segments, each named after the position of its first byte:

    data/log/<writer>/00000000000000000000.seg ...     records, see frames.py
    data/log/<writer>/alive                            flock held while the writer lives
    data/log/<writer>/high                             per bucket, the highest position ever seen
                                                       applied, in which epoch of the bucket, and in
                                                       which boot of the machine that was written;
                                                       shared memory for the neighbours: a power cut
                                                       takes it

It must never sync a file again after a failed sync: the kernel may have thrown the pages away and
say yes the second time. The process ends instead, and its heir applies what reached the disk.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

from dq.core import clock
from dq.core.errors import DiskFull
from dq.log.frames import (
    Frame,
    Head,
    decode_head,
    encode_head,
    encode_mark,
)
from dq.log.segment import frames_of_segment

_log = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 1024 * 1024
MAX_BUCKETS = 512
EPOCHS = MAX_BUCKETS
BOOTS = 2 * MAX_BUCKETS
_FULL = (errno.ENOSPC, errno.EDQUOT)


class LogBroken(Exception):
    """The log could not be written or synced; its process must end without another answer."""


class Log:
    """The appending side. Not thread-safe: one task appends, one thread syncs."""

    def __init__(self, root: Path, process: str, buckets: list[str]) -> None:
        self.writer = secrets.token_bytes(8)
        self.folder = root / self.writer.hex()
        self.folder.mkdir(parents=True)
        self._head = Head(
            writer=self.writer.hex(),
            process=process,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=clock.now_ms(),
            buckets=buckets,
        )
        self._alive = os.open(self.folder / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.high = open_high(self.folder)
        for index in range(len(buckets)):
            self.high[BOOTS + index] = boot_number()
        self.end = 0
        self._synced = 0
        self._fd = -1
        self._segment_start = 0
        self._broken = False
        self._turning = threading.Lock()  # a segment is not closed under the thread that syncs it
        self._start_segment()
        _sync_folder(root)

    def append(self, data: bytes) -> int:
        """Write whole frames, with a mark before them; answers the log's new end.

        Raises DiskFull with the log cut back to where it was, LogBroken when even that failed.
        """
        if self._broken:
            raise LogBroken("this log failed before")
        if self.end - self._segment_start >= SEGMENT_BYTES:
            self._start_segment()
        if data:
            data = encode_mark(self._synced) + data
        try:
            _write_all(self._fd, data)
        except OSError as error:
            self._cut_back(error)
        self.end += len(data)
        return self.end

    def sync(self) -> None:
        """Bring what was appended to the disk. Called from a thread. Raises LogBroken."""
        if self._broken:
            raise LogBroken("this log failed before")
        end = self.end
        try:
            with self._turning:
                os.fdatasync(self._fd)
        except OSError as error:
            self._broken = True
            raise LogBroken(f"fdatasync of {self.folder} failed: {error}") from error
        self._synced = max(self._synced, end)

    def close(self) -> None:
        """Let go of the files; the folder stays for the heir."""
        os.close(self._fd)
        os.close(self._alive)

    def _start_segment(self) -> None:
        """The next segment appears whole, under another name before: who reads meanwhile, or after
        a crash, never meets half a head."""
        if self._fd >= 0:
            self.sync()
        path = segment_path(self.folder, self.end)
        draft = path.with_suffix(".new")
        head = encode_head(self._head)
        fd = -1
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            _write_all(fd, head)
            os.fdatasync(fd)
            os.rename(draft, path)
            _sync_folder(self.folder)
        except OSError as error:
            self._drop_segment(fd, draft, error)
        with self._turning:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = fd
        self._segment_start = self.end
        self.end += len(head)

    def _drop_segment(self, fd: int, path: Path, error: OSError) -> NoReturn:
        if fd >= 0:
            os.close(fd)
            path.unlink(missing_ok=True)
        if error.errno in _FULL:
            raise DiskFull() from error
        self._broken = True
        raise LogBroken(f"no new segment at {path}: {error}") from error

    def _cut_back(self, error: OSError) -> NoReturn:
        size = self.end - self._segment_start
        try:
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        except OSError as again:
            self._broken = True
            raise LogBroken(f"{self.folder} cannot be cut back: {again}") from again
        if error.errno in _FULL:
            raise DiskFull() from error
        self._broken = True
        raise LogBroken(f"writing to {self.folder} failed: {error}") from error


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def segment_path(folder: Path, start: int) -> Path:
    """The segment whose first byte is at log position `start`."""
    return folder / f"{start:020d}.seg"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a log, oldest first, each with the position of its first byte."""
    return sorted((int(path.stem), path) for path in folder.glob("*.seg"))


class Newest:
    """The newest segment of a log that is looked at again and again, for two looks at the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed_ns = 0
        self._start, self._path = 0, folder

    def look(self) -> tuple[int, int]:
        """The position of its first byte, and its size. Raises FileNotFoundError."""
        changed_ns = os.stat(self._folder).st_mtime_ns
        if changed_ns != self._changed_ns:
            self._start, self._path = _newest_segment(self._folder)
            # Time stamps are coarse: another change just now could have the same one.
            is_settled = clock.now_ms() - changed_ns // 1_000_000 > 1_000
            self._changed_ns = changed_ns if is_settled else 0
        return self._start, os.stat(self._path).st_size


def open_high(folder: Path) -> memoryview:
    """The shared table of applied positions, made when missing: a 64-bit number a bucket, then,
    from EPOCHS on, the epoch in which each of them holds, and from BOOTS on the boot in which."""
    size = 3 * MAX_BUCKETS * 8
    fd = os.open(folder / "high", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size < size:
            # Room on the disk now: a hole that can't be filled later kills whoever writes to it.
            os.posix_fallocate(fd, 0, size)
        return memoryview(mmap.mmap(fd, size)).cast("Q")
    finally:
        os.close(fd)


@cache
def boot_number() -> int:
    """Which boot of this machine it is, as 64 bits; what shared memory said in another is void."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        text = b"unknown"
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def read_head(folder: Path) -> Head:
    """What the log says of itself. Raises LogDamaged, FileNotFoundError when it has no segment."""
    all_segments = segments(folder)
    if not all_segments:
        raise FileNotFoundError(f"{folder} has no segment")
    with all_segments[0][1].open("rb") as file:
        return decode_head(file.read(1 << 20))[0]


def end_of_records(folder: Path) -> int:
    """The position after the last byte written, a segment's head without records not counted.

    Raises FileNotFoundError, IndexError where there is no segment.
    """
    start, path = segments(folder)[-1]
    with path.open("rb") as file:
        _, first = decode_head(file.read(1 << 20))
        size = file.seek(0, os.SEEK_END)
    return start + size if size > first else start


def _newest_segment(folder: Path) -> tuple[int, Path]:
    """Raises FileNotFoundError when the log has been retired."""
    if not (parts := segments(folder)):
        raise FileNotFoundError(f"{folder} has no segment")
    return parts[-1]


def cut_torn_tail(folder: Path, end: int) -> None:
    """Shorten a dead writer's log to its last whole record, which ends at position `end`.

    Raises FileNotFoundError when the log has been retired.
    """
    start, path = _newest_segment(folder)
    size = path.stat().st_size
    if end > start and size > end - start:
        _log.warning("%s: %d bytes that were never synced are cut", path, size - (end - start))
        os.truncate(path, end - start)
    elif end <= start and end_of_records(folder) > start:
        with path.open("rb") as file:
            _, first = decode_head(file.read(1 << 20))
        os.truncate(path, first)


def append_to_dead(folder: Path, data: bytes) -> None:
    """Whole frames at the end of a dead writer's log, whose torn tail was cut; on the disk when
    this returns. For its heir alone. Raises OSError."""
    fd = os.open(_newest_segment(folder)[1], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        _write_all(fd, data)
        os.fdatasync(fd)
    finally:
        os.close(fd)


def read_frames(folder: Path, from_pos: int = 0) -> Iterator[Frame]:
    """The records of a log from a position on, segment by segment, up to its torn or live tail.

    A torn tail is accepted in the last segment only: a segment is synced before the next begins.
    Raises LogDamaged.
    """
    parts = segments(folder)
    for start, path in parts:
        size = path.stat().st_size
        if start + size <= from_pos:
            continue
        yield from frames_of_segment(start, path, from_pos, is_last=start == parts[-1][0])
