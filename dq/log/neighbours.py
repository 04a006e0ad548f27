"""The logs of this host, one's own among them: who lives, and what was ever seen applied.

A living writer holds a lock on its folder; where the lock can be had the writer is dead, and its
records and leases are the heir's (dq.journal.heir). The `high` tables are shared memory: a lease
carries them along, so a bucket that lost records is seen before it hands anything out.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from dq.core import clock
from dq.log.frames import Head, LogDamaged
from dq.log.log import BOOTS, EPOCHS, boot_number, open_high, read_head

SETTLED_MS = 1_000


class Neighbour:
    """One log of this host, seen from outside."""

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError while the log is being made or removed, LogDamaged."""
        self.folder = folder
        self.writer = bytes.fromhex(folder.name)
        self.head: Head = read_head(folder)
        self.high = open_high(folder)
        self.index_of = {name: index for index, name in enumerate(self.head.buckets)}

    def high_of(self, bucket: str) -> int:
        """The highest sequence of this writer ever seen applied in the bucket of that name."""
        index = self.index_of.get(bucket)
        return 0 if index is None else self.high[index]

    def declare(self, bucket: str, epoch: int, applied: int) -> None:
        """The bucket was begun anew, and what stands there of this writer reaches to `applied`."""
        index = self.index_of[bucket]
        self.high[index] = applied
        self.high[EPOCHS + index] = epoch

    def is_declared(self, bucket: str, epoch: int) -> bool:
        """Whether `high` speaks of this epoch of the bucket."""
        index = self.index_of[bucket]
        return not self.high[index] or self.high[EPOCHS + index] == epoch

    def is_sure(self, bucket: str) -> bool:
        """Whether `high` was kept in this boot of the machine: a power cut takes it, and then only
        the heir knows again what a bucket should have, when it has applied the log."""
        index = self.index_of.get(bucket)
        return index is None or self.high[BOOTS + index] == boot_number()

    def vouch(self, bucket: str, last: int) -> None:
        """`high` is right again: the whole log, up to `last`, is applied in the bucket, or never
        will be. What it said of another boot may lie beyond what of the log reached the disk."""
        if not self.is_sure(bucket):
            index = self.index_of[bucket]
            self.high[index] = last
            self.high[BOOTS + index] = boot_number()

    def is_placed(self, bucket: str, epoch: int) -> bool:
        """Whether `declare` said in this epoch of the bucket where the log stands in it."""
        return self.high[EPOCHS + self.index_of[bucket]] == epoch

    def is_alive(self) -> bool:
        """Whether its process still holds the log."""
        try:
            fd = os.open(self.folder / "alive", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


class Neighbours:
    """All logs below `root`; `look` brings the list up to date."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = str(root)
        self._known: dict[str, Neighbour] = {}
        self._changed_ns = 0
        self.damaged: dict[str, str] = {}

    def look(self) -> list[Neighbour]:
        """The logs there are now. One that can't be read is in `damaged`, with the reason.

        Costs one look at the disk while no log comes or goes.
        """
        try:
            changed_ns = os.stat(self._path).st_mtime_ns
        except FileNotFoundError:
            self._known.clear()
            return []
        if changed_ns != self._changed_ns:
            # Time stamps are coarse: another change just now could have the same one.
            is_settled = clock.now_ms() - changed_ns // 1_000_000 > SETTLED_MS
            self._changed_ns = changed_ns if self._list() and is_settled else 0
        return list(self._known.values())

    def _list(self) -> bool:
        """Whether all that is there is known now."""
        names = set(os.listdir(self._root))
        for gone in self._known.keys() - names:
            del self._known[gone]
        for name in sorted(names - self._known.keys() - self.damaged.keys()):
            self._meet(name)
        return names <= self._known.keys() | self.damaged.keys()

    def _meet(self, name: str) -> None:
        folder = self._root / name
        if not folder.is_dir():
            return
        try:
            self._known[name] = Neighbour(folder)
        except FileNotFoundError:
            return  # it is being made or removed just now: the next look sees
        except (LogDamaged, ValueError) as error:
            self.damaged[name] = str(error)

    def high_of(self, bucket: str) -> list[tuple[bytes, int]]:
        """For each writer of this host with records in a bucket: the highest ever applied."""
        pairs = ((one.writer, one.high_of(bucket)) for one in self._known.values())
        return [(writer, high) for writer, high in pairs if high]

    def is_sure(self, bucket: str) -> bool:
        """False after a power cut until the heir has applied every log in the bucket: what is
        finished could look unfinished there."""
        return all(one.is_sure(bucket) for one in self._known.values())
