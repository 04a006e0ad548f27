"""What `dq demo` is called back at and mailed to: the standard library's plainest servers."""

from __future__ import annotations

import email
import email.policy
import json
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dq.core.clock import now_ms


@dataclass(frozen=True, slots=True)
class Arrival:
    """One callback as it came in. `code` is what was answered."""

    topic: str
    id: str
    attempt: int
    late_ms: int
    code: int


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str
    text: str


class Receivers:
    """An HTTP and an SMTP server on free ports of this machine, until `close`.

    `on_arrival` and `on_mail` are called in their threads.
    """

    def __init__(
        self, on_arrival: Callable[[Arrival], None], on_mail: Callable[[Mail], None]
    ) -> None:
        self._servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), partial(_Callback, on_arrival)),
            _MailServer(("127.0.0.1", 0), partial(_Mailbox, on_mail)),
        ]
        http_port, smtp_port = (server.server_address[1] for server in self._servers)
        self.url = f"http://127.0.0.1:{http_port}"
        self.smtp_url = f"smtp://127.0.0.1:{smtp_port}"

    def start(self) -> None:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Callback(BaseHTTPRequestHandler):
    """/fine answers code 200, /moody only from the second attempt on, /broken never."""

    protocol_version = "HTTP/1.1"

    def __init__(self, on_arrival: Callable[[Arrival], None], *connection: Any) -> None:
        self._on_arrival = on_arrival
        super().__init__(*connection)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        attempt = int(self.headers["DQ-Attempt"])
        is_fine = self.path == "/fine" or (self.path == "/moody" and attempt > 1)
        code = 200 if is_fine else 500
        late_ms = now_ms() - int(self.headers["DQ-Due"])
        topic, id = self.headers["DQ-Topic"], self.headers["DQ-Id"]
        self._on_arrival(Arrival(topic, id, attempt, late_ms, code))
        reply = json.dumps({"code": code}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        """The demo tells its own story."""


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


class _Mailbox(socketserver.StreamRequestHandler):
    """As much SMTP as it takes to be handed a mail."""

    def __init__(self, on_mail: Callable[[Mail], None], *connection: Any) -> None:
        self._on_mail = on_mail
        super().__init__(*connection)

    def handle(self) -> None:
        self._say("220 dq demo")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self._say("354 go on")
                self._on_mail(self._read_mail())
                self._say("250 taken")
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _read_mail(self) -> Mail:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b"..") else line)
        message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        body = message.get_body(("plain",))
        return Mail(str(message["Subject"]), str(body.get_content()) if body else "")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
