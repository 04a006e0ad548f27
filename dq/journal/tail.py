"""Reading on in a writer's log, as far as its story is certain.

A record is told when it was applied; before that a note may still come which says that it was
refused. Notes stand after the record they concern and before its position counts as applied, so
whoever looks at `high` first and then reads the notes knows the fate of every record below it.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass

from dq.journal.events import Event, events_of
from dq.log.frames import NOTE, Frame
from dq.log.log import Newest, read_frames
from dq.log.neighbours import Neighbour
from dq.queue.records import unpack

STRETCH_MOST = 4_000
STRETCH_BYTES = 8 * 1024 * 1024
RECENT_MOST = 4
"""How many stretches are kept for the other reader of a log."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of a log, from `begin` to `end`, and what its records that took effect tell.
    `is_full`: more of the log was there to be told."""

    begin: int
    end: int
    events: list[Event]
    is_full: bool


class Tail:
    """One reader's place in one log. `buckets`: the names of those that exist still.

    Two readers of a log, one a little behind the other, read it once: see `follow`.
    """

    def __init__(self, log: Neighbour, pos: int, buckets: Container[str]) -> None:
        self.log = log
        self.pos = pos
        self._buckets = buckets
        self._notes_read = pos
        self._refused: dict[tuple[int, int], int] = {}  # by bucket and sequence: where the note is
        self._seen: object = None
        self._newest = Newest(log.folder)
        self._other: Tail | None = None
        self._recent: dict[int, Stretch] = {}

    def follow(self, other: Tail) -> None:
        """From now on these two share the stretches that either has read."""
        self._other, other._other = other, self
        self._recent = other._recent

    @property
    def lags(self) -> bool:
        """Whether the other reader is further: there is more to read here, with no news of it."""
        return self._other is not None and self.pos < self._other.pos

    def read(self) -> Stretch | None:
        """The next stretch, or None where there is nothing new to tell."""
        if (known := self._recent.get(self.pos)) is not None:
            return known
        state = self._state()
        if state == self._seen:
            return None
        frames, end, is_full = self._read_on(self._certain())
        if end == self.pos:
            self._seen = state
            return None
        if self._refused:
            frames = [one for one in frames if (one.bucket, one.seq) not in self._refused]
        stretch = Stretch(self.pos, end, events_of(frames, self.log.head), is_full)
        if self._other is not None and len(self._recent) < RECENT_MOST:
            self._recent[self.pos] = stretch
        return stretch

    def advance(self, stretch: Stretch) -> None:
        """The stretch has been told for good."""
        self.pos = stretch.end
        if self._refused:
            self._refused = {who: at for who, at in self._refused.items() if at >= self.pos}
        passed = self.pos if self._other is None else min(self.pos, self._other.pos)
        for begin in [begin for begin in self._recent if begin < passed]:
            del self._recent[begin]

    def _state(self) -> object:
        return *self._newest.look(), self.log.high[: len(self.log.head.buckets)].tobytes(), self.pos

    def _read_on(self, certain: Sequence[int]) -> tuple[list[Frame], int, bool]:
        """Records up to the first that is uncertain, and all notes; where the records end, and
        whether only for their number. Each reader ends where the other is: from there on they
        read the same."""
        until = self._other.pos if self._other and self._other.pos > self.pos else sys.maxsize
        full_at = self.pos + STRETCH_BYTES
        frames: list[Frame] = []
        end = self.pos
        is_full = False
        for frame in read_frames(self.log.folder, self.pos):
            begin, after, bucket, seq, _ = frame
            if bucket == NOTE:
                self._note(frame)
            is_full = len(frames) >= STRETCH_MOST or end > full_at
            if is_full or begin >= until or (bucket != NOTE and seq > certain[bucket]):
                break
            end = after
            if bucket != NOTE:
                frames.append(frame)
        else:
            self._notes_read = max(self._notes_read, end)
            return frames, end, False
        self._read_notes(end)
        return frames, end, is_full or end == until

    def _read_notes(self, after: int) -> None:
        """Those that lie beyond what was read, all of them."""
        self._notes_read = max(self._notes_read, after)
        for frame in read_frames(self.log.folder, self._notes_read):
            self._notes_read = frame.end
            if frame.bucket == NOTE:
                self._note(frame)

    def _note(self, frame: Frame) -> None:
        _, _, bucket, seq, _ = unpack(frame.payload)
        self._refused[bucket, seq] = frame.pos

    def _certain(self) -> list[int]:
        """For each bucket of this log up to which record the story is told for good."""
        buckets = self.log.head.buckets
        applied = self.log.high[: len(buckets)].tolist()
        pairs = zip(buckets, applied, strict=True)
        return [last if name in self._buckets else sys.maxsize for name, last in pairs]
