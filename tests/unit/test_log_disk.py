"""A log on a disk that fails: full, or not able to sync. Real errors of the kernel, not staged."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dq.core.errors import DiskFull
from dq.log import log as log_module
from dq.log.frames import encode_frame
from dq.log.log import Log, LogBroken, end_of_records, open_high, read_frames, segments
from tests.forked import Forked

BUCKETS = ["embedded/0"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("A FULL DISK IS NOT TESTED: mounting a small one needs root")
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"A FULL DISK IS NOT TESTED: mount is not permitted here: {mounted.stderr}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log", "dq-server-0", BUCKETS)


def fill(disk: Path, leave: int = 0) -> Path:
    """A file that takes all room but `leave` pages."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(file.tell() // 4096 * 4096 - leave * 4096)
    return ballast


def seqs(folder: Path) -> list[int]:
    return [frame.seq for frame in read_frames(folder)]


def test_a_full_disk_leaves_whole_records_and_the_log_goes_on_when_there_is_room(
    small_disk: Path,
) -> None:
    log = Log(small_disk, "dq-server-0", BUCKETS)
    before = log.append(encode_frame(0, 1, b"first"))
    ballast = fill(small_disk, leave=2)
    with pytest.raises(DiskFull):
        log.append(encode_frame(0, 2, b"x" * 20_000))
    (_, path), *_ = segments(log.folder)
    assert log.end == before == path.stat().st_size == end_of_records(log.folder)
    assert seqs(log.folder) == [1]
    log.append(encode_frame(0, 2, b"a small one still fits"))
    log.sync()
    ballast.unlink()
    log.append(encode_frame(0, 3, b"x" * 20_000))
    log.sync()
    assert seqs(log.folder) == [1, 2, 3]


def test_a_full_disk_where_a_segment_should_begin_leaves_nothing_half_made(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(small_disk, "dq-server-0", BUCKETS)
    end = log.append(encode_frame(0, 1, b"first"))
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", end)
    ballast = fill(small_disk)
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.append(encode_frame(0, 2, b"second"))
        assert sorted(path.suffix for path in log.folder.iterdir()) == ["", "", ".seg"]
    ballast.unlink()
    log.append(encode_frame(0, 2, b"second"))
    assert seqs(log.folder) == [1, 2]
    assert len(segments(log.folder)) == 2


def test_positions_can_be_written_on_a_full_disk(small_disk: Path) -> None:
    """They are shared memory: without their room on the disk the kernel kills the process."""

    def write() -> bytes:
        log = Log(small_disk, "dq-server-0", BUCKETS)
        fill(small_disk)
        log.high[0] = 7
        log.high[-1] = 8
        return log.folder.name.encode()

    child = Forked(write)
    high = open_high(small_disk / child.said.decode())
    assert (high[0], high[-1]) == (7, 8)
    child.kill()


def test_a_failed_sync_ends_the_log_for_good(log: Log) -> None:
    """A pipe can be written to but not synced; after it a second sync would succeed."""
    log.append(encode_frame(0, 1, b"a"))
    file = os.dup(log._fd)
    ends = os.pipe()
    os.dup2(ends[1], log._fd)
    with pytest.raises(LogBroken, match="fdatasync"):
        log.sync()
    os.dup2(file, log._fd)
    with pytest.raises(LogBroken, match="failed before"):
        log.sync()
    with pytest.raises(LogBroken, match="failed before"):
        log.append(encode_frame(0, 2, b"b"))
    for fd in (file, *ends):
        os.close(fd)
    assert seqs(log.folder) == [1]


def test_a_log_that_cannot_be_cut_back_ends(log: Log) -> None:
    """Its file cannot be written to any more, and not be cut either."""
    log.append(encode_frame(0, 1, b"a"))
    (_, path), *_ = segments(log.folder)
    readable = os.open(path, os.O_RDONLY)
    os.dup2(readable, log._fd)
    os.close(readable)
    with pytest.raises(LogBroken, match="cut back"):
        log.append(encode_frame(0, 2, b"b"))
    with pytest.raises(LogBroken, match="failed before"):
        log.append(encode_frame(0, 2, b"b"))
    assert seqs(log.folder) == [1]


def test_no_new_segment_without_a_synced_old_one(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    end = log.append(encode_frame(0, 1, b"a"))
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", end)
    ends = os.pipe()
    os.dup2(ends[1], log._fd)
    with pytest.raises(LogBroken):
        log.append(encode_frame(0, 2, b"b"))
    for fd in ends:
        os.close(fd)
    assert len(segments(log.folder)) == 1


def test_a_segment_ends_while_a_thread_syncs_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lazy sync of an outcome's record goes on beside the next append."""
    end = log.append(encode_frame(0, 1, b"a"))
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", end)
    may_sync, syncs = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow_sync(fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            syncs.set()
            assert may_sync.wait(5)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            log.sync()
        except LogBroken as error:
            errors.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    assert syncs.wait(5)
    threading.Timer(0.05, may_sync.set).start()
    log.append(encode_frame(0, 2, b"b"))
    thread.join()
    assert not errors
    assert seqs(log.folder) == [1, 2]
