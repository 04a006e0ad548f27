"""The logs for people: request_YYYYMMDD.txt and notify_YYYYMMDD.txt, JSON Lines, one file a day.

Each record of the writers' logs makes one line, once: a checkpoint keeps how far each log has been
told and how long each file was then; after a crash the files are cut back to it and told again. The
files are for reading, grep and archives. Nothing in dq depends on them; they may be moved away or
deleted at any time, and each is opened anew for every group of lines.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from dq.core import clock
from dq.core.faults import reach
from dq.core.files import write_atomically
from dq.db.rows import ChangeRow, MessageRow, State
from dq.journal.tail import Stretch
from dq.queue.records import PRIORITIES

_log = logging.getLogger(__name__)

_QUARTER_MS = 900_000
_RESULTS: dict[int, str] = {State.DONE: "ok", State.DELAYED: "retry", State.DEAD: "dead"}


class _Checkpoint(msgspec.Struct):
    cursors: dict[str, int] = {}
    sizes: dict[str, int] = {}


class DayFiles:
    """Writes the lines, and remembers how far it came in `memory`."""

    def __init__(self, folder: Path, memory: Path) -> None:
        self._folder = folder
        self._memory = memory
        self._folder.mkdir(parents=True, exist_ok=True)
        self._checkpoint = _read(memory)
        self._cut_back()

    def cursor(self, writer: str) -> int:
        """How far the log of that writer has been told."""
        return self._checkpoint.cursors.get(writer, 0)

    def tell(self, told: Iterable[tuple[str, Stretch]]) -> None:
        """Write the lines of stretches, each of the writer beside it. Raises OSError, with nothing
        remembered: what was written then is cut off before it is told again."""
        lines: dict[str, list[Line]] = defaultdict(list)
        ends: dict[str, int] = {}
        for writer, stretch in told:
            ends[writer] = stretch.end
            for event in stretch.events:
                name, line = _line_of(event)
                lines[name].append(line)
        try:
            sizes = {name: self._append(name, group) for name, group in lines.items()}
        except OSError:
            self._cut_back()
            raise
        reach("journal.written")
        self._checkpoint.sizes |= sizes
        self._checkpoint.cursors |= ends
        self._save()

    def forget(self, writer: str) -> None:
        """The log of that writer is gone."""
        if self._checkpoint.cursors.pop(writer, None) is not None:
            self._save()

    def _append(self, name: str, lines: list[Line]) -> int:
        """The size that the file has then."""
        view = memoryview(_ENCODER.encode_lines(lines))
        fd = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size + len(view)
            if name not in self._checkpoint.sizes:
                self._begin_file(name, size - len(view))
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        return size

    def _begin_file(self, name: str, size: int) -> None:
        """A new day: older files of this kind are finished."""
        kind = name.partition("_")[0]
        sizes = self._checkpoint.sizes
        for old in sorted(key for key in sizes if key.startswith(kind))[:-1]:
            del sizes[old]
        sizes[name] = size
        self._save()

    def _cut_back(self) -> None:
        for name, size in self._checkpoint.sizes.items():
            path = self._folder / name
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)

    def _save(self) -> None:
        write_atomically(self._memory, msgspec.json.encode(self._checkpoint), sync=False)


def _read(memory: Path) -> _Checkpoint:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return _Checkpoint()
    except msgspec.DecodeError as error:
        _log.warning("%s can't be read, the lines are told again: %s", memory, error)
        return _Checkpoint()


class _PushLine(msgspec.Struct, gc=False):
    t: str
    op: str
    topic: str
    id: str
    due: int
    priority: str
    timeout: float | None
    key: str | None
    body: msgspec.Raw
    version: str


class _OrderLine(msgspec.Struct, gc=False):
    t: str
    op: str
    topic: str
    id: str
    due: int | None
    version: str


class _AttemptLine(msgspec.Struct, gc=False):
    t: str
    topic: str
    id: str
    attempt: int
    url: str
    status: int | None
    ms: int
    result: str
    detail: str
    next_due: int | None
    reply: str
    process: str
    version: str


Line = _PushLine | _OrderLine | _AttemptLine
_ENCODER = msgspec.json.Encoder()


def _line_of(event: MessageRow | ChangeRow) -> tuple[str, Line]:
    """The file and the line that tell of an event."""
    if isinstance(event, MessageRow):
        return _name("request", event.created // _QUARTER_MS), _push_line(event)
    quarter = event.at_ms // _QUARTER_MS
    if event.attempt:
        return _name("notify", quarter), _attempt_line(event)
    return _name("request", quarter), _order_line(event)


@lru_cache(maxsize=64)
def _name(kind: str, quarter: int) -> str:
    """Days begin on a quarter of an hour in every time zone."""
    return f"{kind}_{clock.day_stamp(quarter * _QUARTER_MS)}.txt"


@lru_cache(maxsize=1024)
def _instant(at_ms: int) -> str:
    """Thousands of lines fall into one second, and some into one millisecond."""
    return f"{_second(at_ms // 1000)}{at_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(at_s: int) -> str:
    return clock.rfc3339(at_s * 1000)[:-4]


def _push_line(event: MessageRow) -> _PushLine:
    return _PushLine(
        _instant(event.created),
        "push",
        event.topic,
        event.id,
        event.due,
        PRIORITIES[event.priority],
        event.timeout_ms / 1000 or None,
        event.bkey or None,
        msgspec.Raw(_one_line(event.body)),
        event.version.hex(),
    )


def _one_line(body: bytes) -> bytes:
    """A JSON text in one line: outside of strings, where they are escaped, breaks mean nothing."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ")


def _order_line(event: ChangeRow) -> _OrderLine:
    return _OrderLine(
        _instant(event.at_ms),
        "cancel" if event.state == State.CANCELLED else "reschedule",
        event.topic,
        event.id,
        event.due,
        event.version.hex(),
    )


def _attempt_line(event: ChangeRow) -> _AttemptLine:
    return _AttemptLine(
        _instant(event.at_ms),
        event.topic,
        event.id,
        event.attempt,
        event.url,
        event.status,
        event.ms,
        _RESULTS[event.state],
        event.detail,
        event.due,
        event.reply,
        event.process,
        event.version.hex(),
    )
