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
        self._connection = http.client.HTTPConnection("127.0.0.1", dq.api_port, timeout=5)
        self.start()

    def run(self) -> None:
        for number in range(self._total):
            id_ = f"{self._prefix}{number}"
            due = int(time.time() * 1000 + (number % 97) / 97 * self._spread_s * 1000)
            self.due[id_] = due
            doc = {"topic": self._topic, "id": id_, "body": number, "due": due}
            while not self._push(json.dumps(doc)):
                time.sleep(0.02)
            self.acknowledged.add(id_)
        self._connection.close()

    def _push(self, text: str) -> bool:
        """Whether it was acknowledged; after a cut connection the outcome is unknown."""
        try:
            self._connection.request("POST", "/v1/jobs", text, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False
        return answer.status in (200, 201)

    def finish(self, timeout_s: float = 60) -> None:
        """Wait until all are acknowledged."""
        self.join(timeout_s)
        assert not self.is_alive(), f"{len(self.acknowledged)} of {self._total} acknowledged"
