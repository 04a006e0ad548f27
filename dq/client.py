"""What a Python producer imports: `from dq.client import Client`.

Blocking, standard library only, one kept-alive connection; not for use by several threads at
once. It makes the job's id itself where none is given, so that a push whose answer was lost can
be repeated without making a second job: that is what `push` does by itself once, when a
connection that was kept alive turns out to be dead.
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote, urlencode, urlsplit

DEFAULT_URL = "http://127.0.0.1:6789"


class ApiError(Exception):
    """dq answered, but not with what was asked for.

    `status` is HTTP's; `errors` are the bad fields, each `{"field", "message"}`; `problem` is the
    whole answer. 503 means: the outcome is unknown, repeat with the same id (`problem["id"]`).
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.errors: list[dict[str, str]] = list(problem.get("errors") or [])
        super().__init__(self.detail)


class Unreachable(Exception):
    """dq did not answer: whether the call took effect is unknown."""


class Client:
    """Talks to the API at `url`. `timeout_s` is for each wait on the network.

    Every call raises ApiError or Unreachable when it did not succeed.
    """

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = 30.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http:// or https:// URL")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self.url = url.rstrip("/")
        self._connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        self._path = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def push(
        self, topic: str, body: object, *, id: str | None = None, **options: object
    ) -> dict[str, Any]:
        """Push one job; answers `{"topic", "id", "due", "state", "result"}`.

        `body` is anything JSON can say; bytes are JSON text already and are delivered as they
        are. Options: delay (seconds), due (unix ms or RFC 3339 text), fix_time, priority,
        timeout (seconds), key, on_duplicate ("replace", "keep", "reject"). None means not given.
        """
        fields = {name: value for name, value in options.items() if value is not None}
        head = json.dumps({"topic": topic, "id": id or secrets.token_hex(12), **fields})
        text = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        return self._ask("POST", "/v1/jobs", head[:-1].encode() + b', "body": ' + text + b"}")

    def push_batch(self, jobs: Sequence[bytes]) -> list[dict[str, Any]]:
        """Push up to 1,000 jobs, each a JSON object as text; what `push` answers or a problem for
        each of them, in their order, with its `status`."""
        body = b'{"jobs":[' + b",".join(jobs) + b"]}"
        return cast(list[dict[str, Any]], self._ask("POST", "/v1/jobs/batch", body)["results"])

    def get(self, topic: str, id: str) -> dict[str, Any]:
        """A job with its history; an ApiError of status 404 when there is none."""
        return self._ask("GET", _job_path(topic, id))

    def cancel(self, topic: str, id: str) -> str:
        """ "cancelled", or "running": that callback can't be called back, no retry will follow."""
        return str(self._ask("DELETE", _job_path(topic, id))["result"])

    def redrive(self, topic: str, id: str) -> dict[str, Any]:
        """A dead job back on the schedule; an ApiError of status 409 when it isn't dead."""
        return self._ask("POST", f"{_job_path(topic, id)}/redrive")

    def dead_jobs(self, **wanted: object) -> dict[str, Any]:
        """A page of dead jobs, the latest death first: `{"data", "next_cursor", "has_more"}`.

        Options: topic, q, from, to (times of death, unix ms), limit, cursor. None: not given.
        """
        given = {name: str(value) for name, value in wanted.items() if value is not None}
        return self._ask("GET", f"/v1/dead?{urlencode(given)}")

    def work_dead(
        self, act: str, wanted: Mapping[str, object], cursor: str | None = None
    ) -> dict[str, Any]:
        """ "redrive" or "drop" dead jobs, up to `wanted["limit"]`; answers counts, and a
        `next_cursor` when there may be more."""
        fields = {**wanted, "cursor": cursor} if cursor else wanted
        with self._waiting(600.0):
            return self._ask("POST", f"/v1/dead/{act}", json.dumps(fields).encode())

    def drop_dead(self, topic: str, id: str) -> None:
        """Forget a dead job for ever; an ApiError of status 404 when it isn't dead."""
        self._ask("DELETE", _job_path(topic, id).replace("/v1/jobs/", "/v1/dead/", 1))

    def topics(self) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self._ask("GET", "/v1/topics")["data"])

    def topic(self, topic: str) -> dict[str, Any]:
        return self._ask("GET", _topic_path(topic))

    def put_topic(self, topic: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Make or replace a topic; answers it whole."""
        return self._ask("PUT", _topic_path(topic), json.dumps(fields).encode())

    def delete_topic(self, topic: str) -> None:
        self._ask("DELETE", _topic_path(topic))

    def restore(self, *, overdue: bool = True, timeout_s: float = 3600.0) -> dict[str, Any]:
        """Put back every unfinished job that the nodes have lost; answers the counts."""
        body = json.dumps({"overdue": overdue}).encode()
        with self._waiting(timeout_s):
            return self._ask("POST", "/v1/restore", body)

    def restore_job(self, topic: str, id: str) -> str:
        """ "restored", or "present": it was not missing."""
        path = _job_path(topic, id).replace("/v1/jobs/", "/v1/restore/", 1)
        with self._waiting(120.0):
            return str(self._ask("POST", path)["result"])

    @contextmanager
    def _waiting(self, timeout_s: float) -> Iterator[None]:
        """For a call that takes long, on a connection of its own."""
        self.close()
        usual_s, self._connection.timeout = self._connection.timeout, timeout_s
        try:
            yield
        finally:
            self.close()
            self._connection.timeout = usual_s

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        response, content = self._send(method, self._path + path, body)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {"detail": f"{self.url} answered {response.status}, but not as dq does"}
            raise ApiError(response.status, answer)
        if response.status >= 400:
            raise ApiError(response.status, answer)
        return answer

    def _send(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        headers = {**self._headers, **({"Content-Type": "application/json"} if body else {})}
        was_open = self._connection.sock is not None
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return response, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if was_open and isinstance(error, ConnectionError):
                return self._send(method, path, body)  # it idled too long; every call may repeat
            raise Unreachable(f"{self.url} does not answer: {_reason(error)}") from error


def _job_path(topic: str, id: str) -> str:
    return f"/v1/jobs/{quote(topic, safe='')}/{quote(id, safe='')}"


def _topic_path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
