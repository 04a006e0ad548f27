"""Reading one segment of a log, piece by piece.

Who takes a few records of a log must not pay for reading the 64 MiB that its segment may have, and
whoever follows a log does so many times.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dq.log.frames import Frame, LogDamaged, decode_frames, end_of_head, whole_frames

_HEAD_BYTES = 16
_PIECE_BYTES = 1024 * 1024


def frames_of_segment(start: int, path: Path, from_pos: int, *, is_last: bool) -> Iterator[Frame]:
    """The records from log position `from_pos` on; `start` is the position of the first byte.

    Raises LogDamaged, for a torn tail too unless the segment is the last one.
    """
    with path.open("rb", buffering=0) as file:
        offset = max(end_of_head(file.read(_HEAD_BYTES)), from_pos - start)
        file.seek(offset)
        base = start + offset
        data = file.read(_PIECE_BYTES)
        while len(data) >= _PIECE_BYTES:
            end = yield from whole_frames(data, base)
            if end == base:
                break  # broken, or larger than a piece
            data = data[end - base :] + file.read(_PIECE_BYTES)
            base = end
        data += file.read()
    end = yield from decode_frames(data, base)
    if not is_last and end < base + len(data):
        raise LogDamaged(f"{path} is broken at position {end}, but another segment follows")
