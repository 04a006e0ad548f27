"""A flow of jobs that goes on whatever is killed, and its count at the end."""

from __future__ import annotations

import http.client
import json
import threading
import time

from tests.e2e.program import Program


class Flow(threading.Thread):
    """Pushes `total` jobs, each until it is acknowledged, a few ms to `spread_s` ahead."""

    def __init__(self, dq: Program, topic: str, total: int, prefix: str, spread_s: float) -> None:
        super().__init__(daemon=True)
        self._dq = dq
        self._topic = topic
        self._total = total
        self._prefix = prefix
        self._spread_s = spread_s
        self.acknowledged: set[str] = set()
        self.due: dict[str, int] = {}
        self.start()

    def run(self) -> None:
        connection: http.client.HTTPConnection | None = None
        for number in range(self._total):
            id_ = f"{self._prefix}{number}"
            due = int(time.time() * 1000 + (number % 97) / 97 * self._spread_s * 1000)
            text = json.dumps({"topic": self._topic, "id": id_, "body": number, "due": due})
            self.due[id_] = due
            while id_ not in self.acknowledged:
                try:
                    if connection is None:
                        connection = http.client.HTTPConnection(
                            "127.0.0.1", self._dq.api_port, timeout=5
                        )
                    connection.request(
                        "POST", "/v1/jobs", text, {"Content-Type": "application/json"}
                    )
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status in (200, 201):
                        self.acknowledged.add(id_)
                    else:
                        time.sleep(0.02)
                except (OSError, http.client.HTTPException):
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.02)

    def finish(self, timeout_s: float = 60) -> None:
        """Wait until all are acknowledged."""
        self.join(timeout_s)
        assert not self.is_alive(), f"{len(self.acknowledged)} of {self._total} acknowledged"
