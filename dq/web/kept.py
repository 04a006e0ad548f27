"""A small JSON file below data/ that more than one process may hold open.

It is written whole or not at all and readable by its owner alone; whoever asks for the value gets
what is in the file now, at the cost of one stat. During a reload two admins overlap, and both must
believe the same.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from dq.core.files import write_atomically

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)


class Kept(Generic[T]):
    """The file at `path`, holding a `kind`; `kind()` is its value while there is none."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path = path
        self._kind = kind
        self._value = kind()
        self._seen: tuple[int, int, int] | None = None
        self.is_broken = False

    def read(self) -> T:
        """What it holds. One that can't be read is reported and taken for empty; `is_broken`."""
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return self._value
            self._seen = seen
            self._value = msgspec.json.decode(self._path.read_bytes(), type=self._kind)
            self.is_broken = False
        except FileNotFoundError:
            self._seen, self._value, self.is_broken = None, self._kind(), False
        except (OSError, msgspec.DecodeError) as error:
            _log.error("%s can't be read: %s", self._path, error)
            self._value, self.is_broken = self._kind(), True
        return self._value

    def write(self, value: T, *, sync: bool = True) -> None:
        """Raises OSError, and then nothing has changed."""
        write_atomically(self._path, msgspec.json.encode(value), sync=sync)
        self._value = value
        stat = self._path.stat()
        self._seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        self.is_broken = False

    def hold(self, value: T) -> None:
        """Believe this until the file says otherwise: it can't be written just now."""
        self._value = value
