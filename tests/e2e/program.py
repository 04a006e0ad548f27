"""The whole program as a user starts it, in a folder of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.support import wait_until

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reply(msgspec.Struct):
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


class Program:
    """`dq start` with settings from the environment; every part is its own."""

    ready_within_s = 20.0

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.api_port = free_port()
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("DQ_")},
            "DQ_API_PORT": str(self.api_port),
            "DQ_ADMIN_PORT": str(free_port()),
            "PYTHONPATH": str(ROOT),
            **environ,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.output = folder / "output.txt"

    def __enter__(self) -> Program:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> Program:
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dq", "start"],
                cwd=self.folder,
                env=self.environ,
                stdout=out,
                stderr=out,
            )
        wait_until(self.is_ready, self.ready_within_s, f"ready; see {self.output}")
        return self

    def is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"dq ended: {self.output.read_text()}")
        try:
            return self.call("GET", "/readyz").status == 200
        except OSError:
            return False

    def end(self) -> None:
        """TERM, and what is left by force."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A graceful stop; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    def kill_all(self) -> None:
        """kill -9 for the master and everything it started."""
        assert self.process is not None
        pids = self.pids()
        for pid in (self.process.pid, *pids.values()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def status(self) -> list[dict[str, Any]]:
        """The processes, as `dq status` tells them."""
        done = subprocess.run(
            [sys.executable, "-m", "dq", "status", "--json"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            check=True,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)["processes"]
        return found

    def pids(self) -> dict[str, int]:
        """The pid of each process by its name."""
        return {one["name"]: one["pid"] for one in self.status()}

    def told(self) -> list[dict[str, Any]]:
        """The processes, as the master last told of them; where `status` would cost too much."""
        found: list[dict[str, Any]] = json.loads(
            (self.folder / "data" / "status.json").read_text()
        )["processes"]
        return found

    def kill(self, name: str) -> int:
        """kill -9 for one of them; its pid."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def call(
        self,
        method: str,
        path: str,
        doc: object = None,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 15,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=timeout_s)
        try:
            body = raw if raw is not None else None if doc is None else json.dumps(doc).encode()
            sent = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {key.lower(): value for key, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def topic(self, name: str, **fields: object) -> None:
        reply = self.call("PUT", f"/v1/topics/{name}", fields)
        assert reply.status in (200, 201), reply.raw

    def push(self, topic: str, id: str, body: object = None, **fields: object) -> Reply:
        doc = {"topic": topic, "id": id, "body": body, **fields}
        return self.call("POST", "/v1/jobs", doc)

    def state(self, topic: str, id: str) -> str | None:
        reply = self.call("GET", f"/v1/jobs/{topic}/{id}")
        return reply.json["state"] if reply.status == 200 else None

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """All lines of a log for people, as documents."""
        found = sorted((self.folder / "logs").glob(f"{kind}_*.txt"))
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]
