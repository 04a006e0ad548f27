"""A staged API for the client: it answers what the test laid out, and notes what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeApi:
    """`answers` are used up one a request; each is a status and a document, or a raw body."""

    url: str = ""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    closes_after: int = 1_000
    """Requests on one connection before it is closed without a word."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, api: FakeApi, *connection: Any) -> None:
        self._api = api
        self._served = 0
        super().__init__(*connection)

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._api.requests.append((self.command, self.path, body))
        self._api.tokens.append(self.headers.get("Authorization"))
        status, document = self._api.answers.pop(0)
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self._served += 1
        self.close_connection = self._served >= self._api.closes_after

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """The requests are noted."""


@contextmanager
def fake_api(*answers: tuple[int, Any], closes_after: int = 1_000) -> Iterator[FakeApi]:
    api = FakeApi(answers=list(answers), closes_after=closes_after)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, api))
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
