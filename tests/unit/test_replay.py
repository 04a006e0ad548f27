"""What the logs for people tell of jobs that never finished."""

from __future__ import annotations

import json
from pathlib import Path

from dq.core.clock import day_stamp, rfc3339
from dq.journal.replay import Replay, Unfinished, Window

BEGIN_MS = 1_790_000_000_000


class Logs:
    """Writes lines as dq-journal does; `at` is milliseconds after BEGIN_MS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = 0

    def version(self, at: int) -> str:
        return ((BEGIN_MS + at) * 1000).to_bytes(8, "big").hex() + "77" * 8

    def raw(self, kind: str, at: int, line: bytes) -> None:
        with (self.folder / f"{kind}_{day_stamp(BEGIN_MS + at)}.txt").open("ab") as file:
            file.write(line)

    def _write(self, kind: str, at: int, **fields: object) -> None:
        line = json.dumps({"t": rfc3339(BEGIN_MS + at), "topic": "t", **fields})
        self.raw(kind, at, line.encode() + b"\n")

    def push(self, id_: str, at: int, **fields: object) -> None:
        body = {"id": id_}
        more = {"due": BEGIN_MS + at + 5, "version": self.version(at), "body": body, **fields}
        self._write("request", at, op="push", id=id_, priority="high", key="k", **more)

    def order(self, op: str, id_: str, at: int, of: int, due: int | None = None) -> None:
        self._write("request", at, op=op, id=id_, version=self.version(of), due=due)

    def attempt(self, id_: str, at: int, of: int, result: str, due: int | None = None) -> None:
        self._write("notify", at, id=id_, version=self.version(of), result=result, next_due=due)

    def replay(self, begin: int = 0, end: int = 10**12, topic: str | None = None) -> Replay:
        return Replay(self.folder, Window(BEGIN_MS + begin, BEGIN_MS + end, topic), self._tell)

    def _tell(self, count: int) -> None:
        self.told += count

    def found(self, begin: int = 0, end: int = 10**12, topic: str | None = None) -> list[str]:
        return [one.id for one in self.replay(begin, end, topic).find()]


def test_what_ended_is_not_found(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    for at, id_ in enumerate(("ok", "dead", "cancelled", "retried", "silent")):
        logs.push(id_, at)
    logs.attempt("ok", 10, 0, "ok")
    logs.attempt("dead", 11, 1, "dead")
    logs.order("cancel", "cancelled", 12, 2)
    logs.attempt("retried", 13, 3, "retry", due=BEGIN_MS + 777)
    assert logs.found() == ["retried", "silent"]
    assert [one.due - BEGIN_MS for one in logs.replay().find()] == [777, 9]


def test_the_newest_version_of_an_id_counts(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.push("1", 0)
    logs.push("1", 10)
    logs.attempt("1", 20, 10, "ok")
    logs.push("2", 30)
    logs.attempt("2", 35, 30, "ok")
    logs.push("2", 40)
    logs.push("3", 50)
    logs.push("3", 90)
    assert logs.found() == ["2", "3"]
    assert logs.found(end=80) == ["2"], "what came after the window counts as newer"


def test_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.attempt("1", 5, 10, "ok")
    logs.push("1", 10)
    logs.push("2", 22)
    logs.push("2", 20)
    logs.attempt("2", 23, 20, "ok")
    work = logs.replay()
    found = work.find()
    assert found == [Unfinished("t", "2", bytes.fromhex(logs.version(22)), BEGIN_MS + 27)]


def test_window_topic_and_other_days(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    day = 86_400_000
    logs.push("before", -5)
    logs.push("in", 0)
    logs.push("other", 1, topic="u")
    logs.push("end", 100)
    logs.push("ended tomorrow", 2)
    logs.attempt("ended tomorrow", day, 2, "ok")
    logs.push("moved", 3)
    logs.order("reschedule", "moved", day, 3, due=BEGIN_MS + 2 * day)
    assert logs.found(0, 100) == ["in", "other", "moved"]
    assert logs.found(0, 100, "u") == ["other"]
    assert logs.replay(0, 100, "t").find()[1].due == BEGIN_MS + 2 * day


def test_broken_lines_are_counted_and_a_line_being_written_is_not(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.push("1", 0)
    for broken in (b"\x00\xff\n", b"{}\n", b'{"t":1}\n', b"[1]\n", b"[" * 5000 + b"\n"):
        logs.raw("request", 0, broken)
    logs.raw("notify", 0, b'{"t":"x","topic":"t","id":"1","result":"ok","version":"zz"}\n')
    logs.raw("request", 0, b"\n")
    logs.push("2", 1)
    logs.raw("request", 1, b'{"t": "half a li')
    work = logs.replay()
    found = work.find()
    assert [one.id for one in found] == ["1", "2"]
    assert work.broken == 6
    assert [push.id for _, push in work.pushes(found)] == ["1", "2"]
    assert logs.told == work.total_bytes()


def test_the_second_pass_gives_the_bodies_byte_for_byte(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.push("1", 0)
    logs.push("1", 1)
    raw = b'{"big": 18446744073709551617,  "t": "\\u00e9"}'
    line = json.dumps({"t": "x", "op": "push", "topic": "t", "id": "2", "due": 9})[:-1].encode()
    version = logs.version(2).encode()
    logs.raw("request", 2, line + b',"version":"' + version + b'","body":' + raw + b"}\n")
    work = logs.replay()
    pushes = {push.id: (one, push) for one, push in work.pushes(work.find())}
    assert bytes(pushes["2"][1].body) == raw
    one, push = pushes["1"]
    assert push.version == logs.version(1) == one.version.hex()
    assert (push.priority, push.key) == ("high", "k")
