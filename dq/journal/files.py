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
from typing import Any

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
        lines: dict[str, list[bytes]] = defaultdict(list)
        ends: dict[str, int] = {}
        for writer, stretch in told:
            ends[writer] = stretch.end
            for event in stretch.events:
                name, line = line_of(event)
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

    def _append(self, name: str, lines: list[bytes]) -> int:
        """The size that the file has then."""
        view = memoryview(b"\n".join(lines) + b"\n")
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


def line_of(event: MessageRow | ChangeRow) -> tuple[str, bytes]:
    """The file and the line (without its end) that tell of an event."""
    if isinstance(event, MessageRow):
        return _name("request", event.created), msgspec.json.encode(_push_line(event))
    if event.attempt:
        return _name("notify", event.at_ms), msgspec.json.encode(_attempt_line(event))
    return _name("request", event.at_ms), msgspec.json.encode(_order_line(event))


def _name(kind: str, at_ms: int) -> str:
    return _name_of_quarter(kind, at_ms // _QUARTER_MS)


@lru_cache(maxsize=64)
def _name_of_quarter(kind: str, quarter: int) -> str:
    """Days begin on a quarter of an hour in every time zone."""
    return f"{kind}_{clock.day_stamp(quarter * _QUARTER_MS)}.txt"


@lru_cache(maxsize=64)
def _second(at_s: int) -> str:
    return clock.rfc3339(at_s * 1000)[:-4]


def _instant(at_ms: int) -> str:
    """As clock.rfc3339, for lines of which thousands fall into one second."""
    return f"{_second(at_ms // 1000)}{at_ms % 1000:03d}Z"


def _push_line(event: MessageRow) -> dict[str, Any]:
    return {
        "t": _instant(event.created),
        "op": "push",
        "topic": event.topic,
        "id": event.id,
        "due": event.due,
        "priority": PRIORITIES[event.priority],
        "timeout": event.timeout_ms / 1000 or None,
        "key": event.bkey or None,
        "body": msgspec.Raw(_one_line(event.body)),
        "version": event.version.hex(),
    }


def _one_line(body: bytes) -> bytes:
    """A JSON text in one line: outside of strings, where they are escaped, breaks mean nothing."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ")


def _order_line(event: ChangeRow) -> dict[str, Any]:
    return {
        "t": _instant(event.at_ms),
        "op": "cancel" if event.state == State.CANCELLED else "reschedule",
        "topic": event.topic,
        "id": event.id,
        "due": event.due,
        "version": event.version.hex(),
    }


def _attempt_line(event: ChangeRow) -> dict[str, Any]:
    return {
        "t": _instant(event.at_ms),
        "topic": event.topic,
        "id": event.id,
        "attempt": event.attempt,
        "url": event.url,
        "status": event.status,
        "ms": event.ms,
        "result": _RESULTS[event.state],
        "detail": event.detail,
        "next_due": event.due,
        "reply": event.reply,
        "process": event.process,
        "version": event.version.hex(),
    }
