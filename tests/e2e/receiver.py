"""A callback receiver in a thread of its own: small, fast, and it remembers everything."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Call:
    """One callback as it arrived; `at_ms` is unix time."""

    at_ms: float
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return unquote(self.headers["dq-id"])

    @property
    def attempt(self) -> int:
        return int(self.headers["dq-attempt"])


Answer = tuple[int, bytes]


class Receiver:
    """Answers each POST with what `answer(call)` says; 200 {"code":200} unless told."""

    def __init__(self, answer: Callable[[Call], Answer] | None = None) -> None:
        self.answer = answer or (lambda call: (200, b'{"code":200}'))
        self.calls: list[Call] = []
        self.delay_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self.port = 0

    def __enter__(self) -> Receiver:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ids(self) -> Counter[str]:
        """How often each job was called."""
        return Counter(call.id for call in list(self.calls))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22, backlog=1000)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                at_ms = time.time() * 1000
                lines = head.decode().split("\r\n")
                headers = {}
                for line in lines[1:-2]:
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                call = Call(at_ms, lines[0].split(" ")[1], headers, body)
                self.calls.append(call)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                status, reply = self.answer(call)
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(reply)))
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()
