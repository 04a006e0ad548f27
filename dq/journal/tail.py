"""Reading on in a writer's log, as far as its story is certain.

A record is told when it was applied; before that a note may still come which says that it was
refused. Notes stand after the record they concern and before its position counts as applied, so
whoever looks at `high` first and then reads the notes knows the fate of every record below it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from dq.log.frames import NOTE, Frame
from dq.log.log import read_frames, segments
from dq.log.neighbours import Neighbour
from dq.queue.records import unpack

STRETCH_MOST = 2_000
STRETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of a log, from `begin` to `end`; `frames` are those that took effect."""

    begin: int
    end: int
    frames: list[Frame]


class Tail:
    """One reader's place in one log. `buckets`: the names of those that exist still."""

    def __init__(self, log: Neighbour, pos: int, buckets: Container[str]) -> None:
        self.log = log
        self.pos = pos
        self._buckets = buckets
        self._notes_read = pos
        self._refused: set[tuple[int, int]] = set()
        self._seen: object = None

    def read(self) -> Stretch | None:
        """The next stretch, or None where there is nothing new to tell."""
        state = self._state()
        if state == self._seen:
            return None
        applied = list(self.log.high[: len(self.log.head.buckets)])
        self._read_notes()
        frames: list[Frame] = []
        end = self.pos
        for frame in read_frames(self.log.folder, self.pos):
            is_full = len(frames) >= STRETCH_MOST or end - self.pos > STRETCH_BYTES
            if is_full or not self._is_certain(frame, applied):
                break
            end = frame.end
            if frame.bucket != NOTE and (frame.bucket, frame.seq) not in self._refused:
                frames.append(frame)
        if end == self.pos:
            self._seen = state
            return None
        return Stretch(self.pos, end, frames)

    def advance(self, stretch: Stretch) -> None:
        """The stretch has been told for good."""
        self.pos = stretch.end

    def _state(self) -> object:
        start, path = segments(self.log.folder)[-1]
        return start, path.stat().st_size, bytes(self.log.high), self.pos

    def _read_notes(self) -> None:
        for frame in read_frames(self.log.folder, self._notes_read):
            self._notes_read = frame.end
            if frame.bucket == NOTE:
                _, _, bucket, seq, _ = unpack(frame.payload)
                self._refused.add((bucket, seq))

    def _is_certain(self, frame: Frame, applied: Sequence[int]) -> bool:
        if frame.bucket == NOTE or frame.seq <= applied[frame.bucket]:
            return True
        return self.log.head.buckets[frame.bucket] not in self._buckets
