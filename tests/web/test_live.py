"""The live figures: fragments as they change, for as long as somebody looks and no longer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dq.core.errors import NodeAway
from dq.queue.inspect import NodeLook
from tests.support import wait_until_async
from tests.web.browser import Browser
from tests.web.conftest import Served
from tests.web.jobs_at import add_topic, journaling, push


@asynccontextmanager
async def watching(browser: Browser, path: str = "/live") -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {"Accept": "text/event-stream"}
    async with browser.session.get(browser.base + path, headers=headers) as stream:
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


async def test_a_jobs_page_follows_its_job(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async with journaling(served):
        await add_topic(served, "t")
        await push(served, "t", "a/b", delay_ms=3_600_000)
        browser = await served.visitor()
        async with watching(browser, "/jobs/t/a%2Fb/live") as stream:
            news = await next_news(stream)
            assert "It is not due yet" in news["waits"] and "/move" in news["move"]
            assert "Run now" in news["top"] and "Pushed" in news["story"]
            await served.admin.schedule.cancel("t", "a/b")
            seen: dict[str, str] = {}
            while "Cancelled" not in seen.get("story", "") or "cancelled" not in seen["top"]:
                seen |= await next_news(stream)
            assert seen["move"].strip() == seen["waits"].strip() == ""
            assert "Run now" not in seen["top"] and "body" not in seen, "only what has changed"

            async def away(*_: object) -> None:
                raise NodeAway("<b>gone</b>")

            monkeypatch.setattr(served.admin.inspector, "hold_up", away)
            monkeypatch.setattr(served.admin.journal, "history", away)
            monkeypatch.setattr(served.admin.schedule, "find", away)
            assert "&lt;b&gt;gone&lt;/b&gt;" in (await next_news(stream))["waits"]
        await wait_until_async(lambda: _looker_is_gone(served), 20)


async def test_a_quiet_stream_beats_so_that_its_page_knows_it_lives(served: Served) -> None:
    browser = await served.visitor()
    await served.push("t", "1", delay_ms=60_000)
    async with watching(browser, "/jobs/t/1/live") as stream, asyncio.timeout(20):
        while await stream.content.readline() != b"event: beat\n":
            continue


async def test_a_job_that_nobody_knows_is_told_as_such(served: Served) -> None:
    async with watching(await served.visitor(), "/jobs/t/never/live") as stream:
        assert "perhaps it is forgotten" in (await next_news(stream))["waits"]
