"""The smallest whole dq whose processes a test can arm, kill and replace one by one, and an
endpoint that answers when it is told to."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from dq.journal.heir import BURIED
from dq.log.frames import Frame
from dq.log.log import read_frames
from dq.log.neighbours import Neighbour, Neighbours
from dq.queue.keys import bucket_keys
from dq.queue.nodes import Bucket, Node, make_client
from dq.queue.records import Op, unpack
from tests.e2e.program import ROOT, Reply, free_port
from tests.e2e.receiver import Call, Receiver
from tests.redis.desk import Desk
from tests.support import wait_until
from tests.valkey import Valkey

ROLES = ("journal", "redis-checker", "server", "timer", "consumer")
KEEP_MS = 4_000
PATIENCE_S = 6.0
SURVIVED = {"push.validated", "push.answered", "call.before", "call.after", "settle.applied"}
"""Points at which an exception costs one call, not the process."""

SECRET = "whsec_" + base64.b64encode(b"so that calls name the version").decode()
TOPICS: dict[str, dict[str, object]] = {
    "t": {},
    "narrow": {"concurrency": 1},
    "mortal": {"max_retries": 0},
}


class Endpoint(Receiver):
    """A job's body says how it is answered: {"v": name of the version, "held": from which attempt
    on until `let_go`, 0 never, "answers": a status for each attempt, the last one for the rest}."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = asyncio.Event()

    def hold(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.clear)

    def let_go(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.set)

    def of(self, prefix: str) -> list[Call]:
        return [call for call in list(self.calls) if call.id.startswith(prefix)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                at_ms = time.time() * 1000
                lines = [line.partition(":") for line in head.decode().split("\r\n")]
                headers = {name.lower(): value.strip() for name, _, value in lines[1:-2]}
                body = await reader.readexactly(int(headers["content-length"]))
                call = Call(at_ms, lines[0][0], headers, body)
                self.calls.append(call)
                wanted = json.loads(body)
                if 0 < wanted["held"] <= call.attempt:
                    await self._gate.wait()
                answers = wanted["answers"]
                status = answers[min(call.attempt, len(answers)) - 1]
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\n{}" % status)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()


class World:
    """Valkey, SQLite, the endpoint and one process a role, each of which may be missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.valkey = Valkey().start()
        self.client: redis.Redis = self.valkey.client()
        self.endpoint = Endpoint().__enter__()
        self.port = free_port()
        self.pids: dict[str, int] = {}
        with (folder / "stderr.txt").open("wb") as stderr:
            self._crew = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.crew"],
                cwd=folder,
                env=self._environ(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.root = folder / "data" / "log"
        self._neighbours = Neighbours(self.root)
        bucket = Bucket(Node(self.valkey.url, "", make_client(self.valkey.url)), 0, 0)
        self.desk = Desk(bucket, self.client)
        self.ensure()
        for name, fields in TOPICS.items():
            fields = {"callback": self.endpoint.url, "timeout": 30, "secret": SECRET, **fields}
            wait_until(lambda n=name, f=fields: self._put_topic(n, f), PATIENCE_S)

    def _environ(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DQ_")}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "DQ_API_PORT": str(self.port),
            "DQ_ADMIN_PORT": str(free_port()),
            "DQ_REDIS_URLS": self.valkey.url,
            "DQ_BUCKETS": "1",
            "DQ_RETRY_UNIT": "3600",
        }

    def _put_topic(self, name: str, fields: dict[str, object]) -> bool:
        reply = self.try_call("PUT", f"/v1/topics/{name}", fields)
        return reply is not None and reply.status in (200, 201)

    def close(self) -> None:
        for role in list(self.pids):
            self.kill(role)
        self._crew.kill()
        self._crew.wait()
        assert self._crew.stdin and self._crew.stdout
        self._crew.stdin.close()
        self._crew.stdout.close()
        self.endpoint.__exit__()
        self.client.close()
        self.valkey.stop()

    # Processes

    def spawn(self, role: str, fault: str = "-", keep_ms: int = KEEP_MS) -> int:
        """A process for that role; the one before it is killed."""
        self.kill(role)
        assert self._crew.stdin and self._crew.stdout
        self._crew.stdin.write(f"{role} {fault} {keep_ms}\n".encode())
        self._crew.stdin.flush()
        self.pids[role] = int(self._crew.stdout.readline())
        return self.pids[role]

    def kill(self, role: str) -> None:
        """kill -9, and wait until it is gone; nothing where it is gone already."""
        pid = self.pids.pop(role, 0)
        if pid and state_of(pid):
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not state_of(pid), PATIENCE_S, f"{role} is gone")

    def wait_struck(self, role: str, point: str) -> None:
        pid = self.pids[role]
        words = f"fault struck: {point}="
        wait_until(
            lambda: any(one["pid"] == pid and words in one["message"] for one in self.errors()),
            PATIENCE_S,
            f"{point} is reached by the {role}",
        )

    def survives(self, role: str, point: str, kind: str) -> bool:
        """Wait for the fault, and for its process to be gone; a stopped one is killed, as its
        master would. Whether it still works."""
        self.wait_struck(role, point)
        pid = self.pids[role]
        if kind == "raise" and (
            point in SURVIVED or (point == "write.synced" and role != "server")
        ):
            assert state_of(pid)
            return True
        if kind == "hang":
            wait_until(lambda: state_of(pid) == "T", PATIENCE_S, f"{role} stands still")
            self.kill(role)
        wait_until(lambda: not state_of(pid), PATIENCE_S, f"{role} ends after {point}={kind}")
        return False

    def ensure(self) -> None:
        """One living process for each role, none of them armed."""
        for role in ROLES:
            if not state_of(self.pids.get(role, 0)):
                self.spawn(role)

    def errors(self) -> list[dict[str, Any]]:
        found = sorted((self.folder / "logs").glob("err_*.txt"))
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]

    # Logs

    def logs(self) -> list[Neighbour]:
        return self._neighbours.look()

    def outcomes_in(self, pid: int) -> set[tuple[str, int, int]]:
        """id, stamp of its version and attempt of each outcome in the log of that process."""
        found = set()
        for log in [one for one in self.logs() if one.head.pid == pid]:
            for frame in self._frames(log):
                fields = unpack(frame.payload)
                if fields[0] == Op.SETTLE:
                    found.add((fields[7].decode(), fields[3], fields[12]))
        return found

    def expire_leases(self) -> None:
        """As if the time of all leases had run out."""
        for digest in self.client.zrange(bucket_keys(0)[7], 0, -1):
            self.client.zadd(bucket_keys(0)[7], {digest: 1}, xx=True)

    def wait_at_rest(self) -> None:
        """The dead are buried, and what all logs hold is applied."""
        wait_until(
            lambda: all(self._is_at_rest(one) for one in self.logs()), PATIENCE_S, "all at rest"
        )

    def _is_at_rest(self, log: Neighbour) -> bool:
        if not log.is_alive() and not (log.folder / BURIED).exists():
            return not log.folder.exists()
        last = max((f.seq for f in self._frames(log) if f.bucket == 0), default=0)
        applied = self.client.hget(bucket_keys(0)[0], b"h" + log.writer)
        return int(applied or 0) >= last

    def _frames(self, log: Neighbour) -> Iterator[Frame]:
        """None of a log that is being removed."""
        try:
            yield from read_frames(log.folder)
        except FileNotFoundError:
            return

    # Calls

    def try_call(self, method: str, path: str, doc: object = None) -> Reply | None:
        return answer_of(self.begin(method, path, doc))

    def begin(self, method: str, path: str, doc: object = None) -> http.client.HTTPConnection:
        """A request that is sent, whoever will take it up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        body = None if doc is None else json.dumps(doc)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection

    def insist(self, method: str, path: str, doc: object, *wanted: int) -> Reply:
        """Repeat a call until it is answered so, as a producer does."""
        seen: list[Reply | None] = []

        def is_done() -> bool:
            seen[:] = [self.try_call(method, path, doc)]
            if seen[0] is not None and 400 <= seen[0].status < 500:
                assert seen[0].status in wanted, (method, path, seen[0])
            return seen[0] is not None and seen[0].status in wanted

        wait_until(is_done, PATIENCE_S, f"{method} {path}: {seen}")
        assert seen[0] is not None
        return seen[0]

    def push_all(self, docs: list[dict[str, Any]]) -> None:
        """A batch of pushes that nothing comes in the way of."""
        reply = self.insist("POST", "/v1/jobs/batch", {"jobs": docs}, 200)
        assert {one["status"] for one in reply.json["results"]} <= {200, 201}, reply.json

    def check_places(self) -> None:
        """No job is in two states or in none. Keys are read one after the other: what moves
        meanwhile is looked at again."""
        wait_until(lambda: not self.client.exists("{dq0}:restorer"), PATIENCE_S, "restored")
        try:
            wait_until(self._adds_up, PATIENCE_S, "places")
        except AssertionError:
            self.desk.check()  # says what is wrong
            raise

    def _adds_up(self) -> bool:
        try:
            self.desk.check()
        except AssertionError:
            return False
        return True

    def unfinished(self) -> dict[str, str]:
        return self.desk.places()


def answer_of(connection: http.client.HTTPConnection) -> Reply | None:
    """None where nobody answered."""
    try:
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def state_of(pid: int) -> str:
    """A letter as ps has it; empty for one that is gone or only waits to be reaped, and for 0."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    letter = stat.rpartition(")")[2].split()[0]
    return "" if letter in "ZX" else letter


def body_of(version: str, *answers: int, held: int = 0, pad: int = 0) -> dict[str, Any]:
    return {"v": version, "answers": list(answers or (200,)), "held": held, "pad": "x" * pad}


def version_of(call: Call) -> str:
    return f"{json.loads(call.body)['v']}{call.attempt}"


def outcome_of(call: Call) -> tuple[str, int, int]:
    """As `World.outcomes_in` names the outcome of a call."""
    stamp = int.from_bytes(bytes.fromhex(call.headers["webhook-id"])[:8], "big")
    return call.id, stamp, call.attempt
