"""The newest lines of the logs for people, newest first, without reading more than their ends."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

END_BYTES = 512 * 1024
"""Of each file; what lies before is for `less`."""

T = TypeVar("T", bound=msgspec.Struct)


class Line(msgspec.Struct):
    """What all of them have in common: `t`, an instant in RFC 3339."""

    t: str

    @property
    def at_ms(self) -> int | None:
        """None where it is no instant."""
        try:
            return round(datetime.fromisoformat(self.t).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None


def last_lines(folder: Path, kind: str, shape: type[T], most: int) -> list[T]:
    """Up to `most` lines of the `kind`_YYYYMMDD.txt files, newest first. Lines that are no `shape`
    are left out, and so are files that can't be read."""
    found: list[T] = []
    decoder = msgspec.json.Decoder(shape)
    for path in sorted(folder.glob(f"{kind}_*.txt"), reverse=True):
        for raw in reversed(_end_of(path)):
            try:
                found.append(decoder.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if len(found) == most:
                return found
    return found


def _end_of(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - END_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return [line for line in lines[size > END_BYTES :] if line]
