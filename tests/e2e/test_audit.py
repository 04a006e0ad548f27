"""A part of a node is lost while the rest stands: it is put back, and nothing is called twice."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest
import redis

from tests.e2e.program import Program
from tests.e2e.receiver import Call, Receiver
from tests.e2e.test_restore import push_many
from tests.support import wait_until

LOST = {0: ("jobs",), 1: ("due",), 2: ("ready", "turns1"), 3: ("holders",)}
"""What is deleted, in which bucket."""


def topic_in(bucket: int, prefix: str) -> str:
    names = (f"{prefix}{number}" for number in count())
    return next(name for name in names if crc32(name.encode()) % 4 == bucket)


def delete(dq: Program, bucket: int, *keys: str) -> None:
    path = (dq.folder / "data" / "valkey" / "valkey.sock").resolve()
    with redis.Redis(unix_socket_path=str(path)) as client:
        client.delete(*(f"{{dq{bucket}}}:{key}" for key in keys))


class Story:
    """In one bucket: jobs that are done, cancelled, waiting, running and held back."""

    def __init__(self, dq: Program, receiver: Receiver, bucket: int) -> None:
        self.dq = dq
        self.topic = topic_in(bucket, "t")
        self.held = topic_in(bucket, "held")
        self.url = receiver.url
        dq.topic(self.topic, callback=receiver.url, timeout=20)
        dq.topic(self.held, callback=receiver.url, paused=True)
        self.push(self.topic, "done", 20)
        self.push(self.held, "held", 20)

    def push(self, topic: str, prefix: str, number: int, **fields: object) -> None:
        names = [f"{topic}-{prefix}-{n}" for n in range(number)]
        push_many(self.dq, [{"topic": topic, "id": id_, "body": 1, **fields} for id_ in names])

    def go_on(self, due: int) -> None:
        self.push(self.topic, "wait", 300, due=due)
        self.push(self.topic, "gone", 5, due=due)
        for number in range(5):
            path = f"/v1/jobs/{self.topic}/{self.topic}-gone-{number}"
            assert self.dq.call("DELETE", path).status == 200
        self.push(self.topic, "run", 20)

    def wanted(self) -> dict[str, int]:
        many = {"done": 20, "wait": 300, "run": 20}
        called = {f"{self.topic}-{kind}-{n}": 1 for kind, most in many.items() for n in range(most)}
        return called | {f"{self.held}-held-{n}": 1 for n in range(20)}


@pytest.mark.time_limit(120)
def test_keys_of_a_bucket_are_deleted(tmp_path: Path) -> None:
    def answer(call: Call) -> tuple[int, bytes]:
        return 200, b"ok"

    with Receiver(answer) as receiver, Program(tmp_path) as dq:
        stories = [Story(dq, receiver, bucket) for bucket in LOST]
        wait_until(lambda: len(receiver.calls) == 80, 20)
        due = int(time.time() * 1000) + 8_000
        receiver.delay_s = 4.0
        for story in stories:
            story.go_on(due)
        wait_until(lambda: len(receiver.calls) == 160, 10)
        for bucket, keys in LOST.items():
            delete(dq, bucket, *keys)
        reply = dq.call("POST", "/v1/restore", {"overdue": True})
        assert reply.status == 200, reply.raw
        assert reply.json["looked_at"] >= 4 * 320
        assert reply.json["nodes_away"] == []
        again = dq.call("POST", "/v1/restore", {"overdue": True}).json
        assert (again["restored"], again["rescheduled"]) == (0, 0)
        receiver.delay_s = 0.0
        for story in stories:
            dq.topic(story.held, callback=receiver.url)
        wanted = {id_: n for story in stories for id_, n in story.wanted().items()}
        wait_until(lambda: len(receiver.ids()) >= len(wanted), 30, "all jobs")
        wait_until(lambda: dq.call("GET", "/v1/jobs?state=delayed").json["data"] == [], 10)
        assert receiver.ids() == wanted
        early = [call for call in receiver.calls if "wait" in call.id and call.at_ms < due]
        assert not early
        assert dq.call("POST", "/v1/restore").json["looked_at"] == 0


@pytest.mark.time_limit(60)
def test_it_is_noticed_without_being_asked(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url)
        due = int(time.time() * 1000) + 5_000
        push_many(dq, [{"topic": "t", "id": str(n), "body": n, "due": due} for n in range(500)])
        wait_until(lambda: len(dq.lines("request")) == 500)
        delete(dq, crc32(b"t") % 4, "due")
        wait_until(lambda: len(receiver.calls) == 500, 10)
        assert set(receiver.ids().values()) == {1}
        told = [line["message"] for line in dq.lines("err")]
        assert any("stood nowhere" in message for message in told), told


@pytest.mark.time_limit(60)
def test_one_job_and_what_is_overdue(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url, paused=True)
        for id_ in ("now", "later"):
            assert dq.push("t", id_, delay=0 if id_ == "now" else 3600).status == 201
        assert dq.call("POST", "/v1/restore/t/later").json == {"result": "present"}
        wait_until(lambda: dq.state("t", "now") == "ready")
        jobs = crc32(b"t") % 4
        delete(dq, jobs, "jobs", "ready", "due")  # the counts add up: nobody sees it by itself
        left = dq.call("POST", "/v1/restore", {"overdue": False}).json
        assert (left["restored"], left["overdue_left"]) == (1, 1)
        assert dq.state("t", "later") == "delayed"
        words = [sys.executable, "-m", "dq", "restore", "--topic", "t", "--id", "now", "--json"]
        done = subprocess.run(words, cwd=tmp_path, env=dq.environ, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b'{\n  "result": "restored"\n}\n'), done.stderr
        assert dq.state("t", "now") == "ready"
        dq.topic("t", callback=receiver.url)
        wait_until(lambda: dq.state("t", "now") == "done")
        gone = dq.call("POST", "/v1/restore/t/now")
        assert gone.status == 404
        assert "is done" in gone.json["detail"]
        assert dq.call("POST", "/v1/restore/t/never").status == 404
        assert len(receiver.calls) == 1
