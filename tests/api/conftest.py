"""The API served on a real socket of this machine, on parts in memory."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from dq.api import app
from dq.api.app import make_app, make_runner
from dq.api.deps import Api
from dq.core.settings import load_settings
from dq.core.topic import Topic
from tests.api.doubles import MemoryBook, MemoryJournal, MemorySchedule, StagedAudit


@dataclass
class Reply:
    """An answer, read to its end."""

    status: int
    headers: Any
    raw: bytes

    @property
    def doc(self) -> Any:
        return json.loads(self.raw)


class Served:
    """The API under test, its parts, and a client that sends what it is told, unimproved."""

    def __init__(self, **environ: str) -> None:
        self.schedule = MemorySchedule()
        self.book = MemoryBook()
        self.journal = MemoryJournal()
        self.audit = StagedAudit()
        self.parts: dict[str, str] = {"nodes": "ok", "topics": "ok", "consumers": "unknown"}
        self.settings = load_settings(None, {"DQ_MAX_BODY": "2000", **environ})
        self.book.topics["t"] = Topic(topic="t", callback="http://127.0.0.1/", delay=5)

    async def start(self, stack: AsyncExitStack) -> None:
        ready = lambda: self.parts  # noqa: E731
        deps = Api(self.settings, self.schedule, self.book, self.journal, ready, self.audit)
        self.runner = make_runner(make_app(deps))
        await self.runner.setup()
        stack.push_async_callback(self.runner.cleanup)
        stack.callback(self.schedule.gate.set)
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.port: int = self.runner.addresses[0][1]
        jar = aiohttp.DummyCookieJar()
        self.session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))

    def has_lost_its_clients(self) -> bool:
        """Whether the server has noticed that every client is gone."""
        assert self.runner.server is not None
        return all(handler.transport is None for handler in self.runner.server.connections)

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """`body`: bytes go as they are, anything else as JSON. Underscores in the names of
        headers are dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named.setdefault("Content-Type", "application/json")
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            body = io.BytesIO(raw)
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self.session.request(method, url, data=body, headers=named) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def push(self, _raw: bytes | None = None, **fields: Any) -> Reply:
        return await self.call("POST", "/v1/jobs", fields if _raw is None else _raw)

    async def speak(self, data: bytes, *, then_close: bool = False) -> bytes:
        """Send raw bytes on a connection of its own; all that comes until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        if then_close:
            writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()


Start = Callable[..., Awaitable[Served]]


@pytest.fixture
async def start_api(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts an API with the given DQ_ variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "DRAIN_S", 0.1)
    async with AsyncExitStack() as stack:

        async def start(**environ: str) -> Served:
            served = Served(**environ)
            await served.start(stack)
            return served

        yield start


@pytest.fixture
async def api(start_api: Start) -> Served:
    """An API with defaults but bodies of at most 2,000 bytes; topic `t` has a delay of 5 s."""
    return await start_api()


def assert_problem(reply: Reply, status: int, name: str, *fields: str) -> dict[str, Any]:
    """The reply is the problem `name`; with `fields`, exactly these are complained about."""
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")
    doc: dict[str, Any] = reply.doc
    assert doc["type"] == f"urn:dq:problem:{name}"
    assert doc["status"] == status
    assert doc["title"] and doc["detail"]
    assert [error["field"] for error in doc.get("errors", [])] == list(fields)
    return doc
