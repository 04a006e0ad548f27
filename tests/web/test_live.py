"""The live figures: fragments as they change, for as long as somebody looks and no longer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dq.queue.inspect import NodeLook
from tests.support import wait_until_async
from tests.web.browser import Browser
from tests.web.conftest import Served


@asynccontextmanager
async def watching(browser: Browser) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {"Accept": "text/event-stream"}
    async with browser.session.get(f"{browser.base}/live", headers=headers) as stream:
        assert stream.status == 200
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert stream.headers["Cache-Control"] == "no-store"
        yield stream


async def next_news(stream: aiohttp.ClientResponse) -> dict[str, str]:
    """The next event with data; {} when the stream has ended."""
    async with asyncio.timeout(20):
        while line := await stream.content.readline():
            if line.startswith(b"data: "):
                return dict(json.loads(line[6:]))
    return {}


async def test_fragments_come_at_once_and_again_when_they_change(served: Served) -> None:
    async with watching(await served.visitor()) as stream:
        first = await next_news(stream)
        assert first.keys() == {"state", "figures", "charts", "ahead", "nodes", "processes"}
        await served.push("t", "1", delay_ms=60_000)
        news = await next_news(stream)
        while "1 job in all" not in news.get("ahead", ""):
            news = await next_news(stream)


async def test_each_watcher_reads_in_their_own_language(served: Served) -> None:
    async with watching(await served.visitor(**{"Accept-Language": "zh"})) as stream:
        assert "一切正常" in (await next_news(stream))["state"]


async def test_nodes_are_not_asked_while_nobody_looks(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = served.admin.inspector.look

    async def counted() -> list[NodeLook]:
        nonlocal looks
        looks += 1
        return await look()

    monkeypatch.setattr(served.admin.inspector, "look", counted)
    browser = await served.visitor()
    async with watching(browser) as stream:
        await next_news(stream)
        seen = looks
        await wait_until_async(lambda: looks > seen, 20)
    await wait_until_async(lambda: _looker_is_gone(served), 20)
    before = looks
    await asyncio.sleep(0)
    assert looks == before


def _looker_is_gone(served: Served) -> bool:
    names = (str(task.get_coro()) for task in asyncio.all_tasks())
    return not any("_keep_looking" in name for name in names)


async def test_a_stream_ends_with_its_session(served: Served) -> None:
    browser = await served.visitor()
    async with watching(browser) as stream:
        await next_news(stream)
        await browser.post("/logout")
        while await next_news(stream):
            continue


async def test_a_stop_waits_for_no_watcher(served: Served) -> None:
    browser = await served.visitor()
    async with watching(browser) as stream:
        await next_news(stream)
        shutdown: Any = served.app.on_shutdown
        async with asyncio.timeout(5):
            await shutdown.send(served.app)
        while await next_news(stream):
            continue
