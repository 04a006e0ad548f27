"""What the logs for people tell of jobs that were accepted and never finished.

Nothing but request_*.txt and notify_*.txt is read, as all else may be lost. Two passes over files
of any size: the first keeps names and versions of what is unfinished so far, the second reads the
bodies of what is left, one at a time. Lines of several processes may stand out of order by a
little, so versions decide, never the order. A line that can't be read is counted and passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from dq.core.clock import day_stamp

Name = tuple[str, str]


class Window(msgspec.Struct, frozen=True):
    """Pushes from `from_ms` on and before `to_ms`, of one topic or of all."""

    from_ms: int
    to_ms: int
    topic: str | None = None


class Unfinished(msgspec.Struct):
    """A job that was accepted and never finished. `due`: after all that was heard of it."""

    topic: str
    id: str
    version: bytes
    due: int

    @property
    def pushed_ms(self) -> int:
        return _pushed_ms(self.version)


class Push(msgspec.Struct, frozen=True):
    """A line of a push, as request_*.txt has it; the body is JSON text."""

    topic: str
    id: str
    version: str
    body: msgspec.Raw
    priority: str = "normal"
    timeout: float | None = None
    key: str | None = None


class _Request(msgspec.Struct):
    t: str
    op: str
    topic: str
    id: str
    version: str
    due: int | None = None


class _Attempt(msgspec.Struct):
    t: str
    topic: str
    id: str
    result: str
    version: str
    next_due: int | None = None


class Replay:
    """Reads the logs below `folder`. `told` is called with the bytes read, now and then."""

    def __init__(self, folder: Path, window: Window, told: Callable[[int], None]) -> None:
        self._window = window
        self._told = told
        first = day_stamp(window.from_ms)
        self._requests = _files(folder, "request", first)
        self._attempts = _files(folder, "notify", first)
        self._newest: dict[Name, Unfinished] = {}
        self._ended: set[bytes] = set()
        self.broken = 0
        self.replaced = 0

    def total_bytes(self) -> int:
        """Of both passes together."""
        sizes = [_size(path) for path in self._requests]
        return 2 * sum(sizes) + sum(_size(path) for path in self._attempts)

    def find(self) -> list[Unfinished]:
        """The first pass: what was accepted in the window and never finished, oldest first."""
        requests = self._lines(self._requests, msgspec.json.Decoder(_Request))
        attempts = self._lines(self._attempts, msgspec.json.Decoder(_Attempt))
        for line in heapq.merge(requests, attempts, key=_at):
            if self._window.topic in (None, line.topic):
                self._hear(line)
        found = [one for one in self._newest.values() if one.pushed_ms < self._window.to_ms]
        self._newest = {}
        return sorted(found, key=_version)

    def pushes(self, wanted: list[Unfinished]) -> Iterator[tuple[Unfinished, Push]]:
        """The second pass: each of them with the line of its push."""
        left = {(one.topic, one.id): one for one in wanted}
        decoder = msgspec.json.Decoder(_Request)
        body = msgspec.json.Decoder(Push)
        for raw in self._raw_lines(self._requests):
            try:
                line = decoder.decode(raw)
                one = left.get((line.topic, line.id)) if line.op == "push" else None
                if one is None or (version := bytes.fromhex(line.version)) < one.version:
                    continue
                push = body.decode(raw)
            except (msgspec.MsgspecError, ValueError):
                continue  # counted in the first pass
            del left[line.topic, line.id]
            if version == one.version:
                yield one, push
            else:
                self.replaced += 1

    def _hear(self, line: _Request | _Attempt) -> None:
        version = bytes.fromhex(line.version)
        if _pushed_ms(version) < self._window.from_ms:
            return
        known = self._newest.get((line.topic, line.id))
        is_it = known is not None and known.version == version
        if isinstance(line, _Request) and line.op == "push":
            is_newer = known is None or known.version < version
            if is_newer and version not in self._ended:
                self._newest[line.topic, line.id] = Unfinished(
                    line.topic, line.id, version, line.due or 0
                )
        elif _is_end(line):
            if is_it:
                del self._newest[line.topic, line.id]
            else:
                self._ended.add(version)  # its push may stand further down
        elif known is not None and is_it:
            due = line.due if isinstance(line, _Request) else line.next_due
            known.due = due or known.due

    def _lines(self, paths: list[Path], decoder: msgspec.json.Decoder[Any]) -> Iterator[Any]:
        for raw in self._raw_lines(paths):
            try:
                line = decoder.decode(raw)
                if len(bytes.fromhex(line.version)) != 16:
                    raise ValueError(line.version)
            except (msgspec.MsgspecError, ValueError):
                self.broken += 1
                continue
            yield line

    def _raw_lines(self, paths: list[Path]) -> Iterator[bytes]:
        """Whole lines; one at the end of a file without its line break is being written."""
        read = 0
        for path in paths:
            with path.open("rb") as file:
                for raw in file:
                    read += len(raw)
                    if read > 1 << 20:
                        self._told(read)
                        read = 0
                    if raw.endswith(b"\n") and not raw.isspace():
                        yield raw
        self._told(read)


def _files(folder: Path, kind: str, first_day: str) -> list[Path]:
    paths = sorted(folder.glob(f"{kind}_*.txt"))
    return [path for path in paths if path.stem.partition("_")[2] >= first_day]


def _size(path: Path) -> int:
    return path.stat().st_size


def _at(line: _Request | _Attempt) -> str:
    return line.t


def _version(one: Unfinished) -> bytes:
    return one.version


def _pushed_ms(version: bytes) -> int:
    return int.from_bytes(version[:8], "big") // 1000


def _is_end(line: _Request | _Attempt) -> bool:
    if isinstance(line, _Request):
        return line.op == "cancel"
    return line.result in ("ok", "dead")
