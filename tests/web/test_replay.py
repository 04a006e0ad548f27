"""Replaying in the admin: what the logs say is missing, pushed again once and stopped at will."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence

import pytest

from dq.core.clock import day_stamp, local_text, rfc3339
from dq.core.topic import Topic
from dq.queue.schedule import NewJob
from dq.web import replay_work
from tests.web.browser import Browser
from tests.web.conftest import Served
from tests.web.test_pages import HOSTILE, assert_is_harmless

HOUR_MS = 3_600_000


class Logs:
    """request_*.txt and notify_*.txt of an hour ago."""

    def __init__(self, served: Served) -> None:
        self.folder = served.settings.log_dir
        self.folder.mkdir(exist_ok=True)
        self.at_ms = served.now_ms // 1000 * 1000 - HOUR_MS
        self.query = f"from={local_text(self.at_ms - HOUR_MS)[:16].replace(' ', 'T')}"

    def version(self, number: int) -> str:
        return ((self.at_ms + number) * 1000).to_bytes(8, "big").hex() + "0" * 16

    def push(self, topic: str, number: int, *, id_: str = "", **more: object) -> None:
        line = {
            "t": rfc3339(self.at_ms + number),
            "op": "push",
            "topic": topic,
            "id": id_ or str(number),
            "version": self.version(number),
            "due": self.at_ms + 30 * HOUR_MS,
            "body": {"n": number},
            **more,
        }
        self._write("request", line)

    def end(self, topic: str, number: int) -> None:
        line = {"t": rfc3339(self.at_ms + number), "topic": topic, "id": str(number)}
        self._write("notify", {**line, "result": "ok", "version": self.version(number)})

    def _write(self, kind: str, line: dict[str, object]) -> None:
        path = self.folder / f"{kind}_{day_stamp(self.at_ms)}.txt"
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
async def logs(served: Served) -> Logs:
    object.__setattr__(served.settings, "log_dir", served.settings.data_dir / "logs")
    await served.admin.topics.put(Topic(topic="t", callback="http://h/"))
    return Logs(served)


async def _push_again(browser: Browser, logs: Logs, topic: str = "") -> None:
    page = await browser.see(f"/replay?{logs.query}&topic={topic}", "Pushed at")
    fields = {
        name: page.text.partition(f'name="{name}" value="')[2].partition('"')[0]
        for name in ("from_ms", "to_ms")
    }
    reply = await browser.post("/replay/push", {**fields, "topic": topic})
    assert reply.status == 303, reply.words
    assert reply.location.startswith("/replay?from=")


def _ids(numbers: Sequence[int]) -> list[str]:
    return [str(number) for number in numbers]


async def test_what_never_finished_is_shown_and_pushed_again_once(
    served: Served, logs: Logs
) -> None:
    for number in range(6):
        logs.push("t", number)
    logs.end("t", 0)
    await served.push("t", "1", delay_ms=HOUR_MS)
    browser = await served.visitor()
    page = await browser.see(f"/replay?{logs.query}", "5 jobs are missing")
    assert "Push again" in page.words
    assert await served.admin.schedule.find("t", "2") is None
    await _push_again(browser, logs)
    page = await browser.see(
        f"/replay?{logs.query}", "Pushed again 4", "Were still there 1", "Once more"
    )
    found = [await served.admin.schedule.find("t", one) for one in _ids(range(6))]
    assert [one is not None for one in found] == [False, True, True, True, True, True]
    assert found[2] is not None and json.loads(found[2].body) == {"n": 2}
    assert found[2].due_ms == logs.at_ms + 30 * HOUR_MS
    await _push_again(browser, logs)
    await browser.see(f"/replay?{logs.query}", "Pushed again 0", "Were still there 5")
    told = [one.after for one in (await served.admin.store.changes()).changes if one.after]
    assert any("created 4, kept 1, finished 0, failed 0 of 5" in one for one in told)


async def test_only_the_topic_that_was_chosen(served: Served, logs: Logs) -> None:
    logs.push("t", 1)
    logs.push("gone", 2)
    browser = await served.visitor()
    page = await browser.see(f"/replay?{logs.query}&topic=gone", "1 job is missing")
    assert 'name="topic" value="gone"' in page.text
    await _push_again(browser, logs, "gone")
    await browser.see(f"/replay?{logs.query}&topic=gone", "not registered any more", "Not pushed 1")


async def test_it_can_be_stopped_and_gone_on_with(
    served: Served, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dq.journal.push_again.BATCH_JOBS", 2)
    for number in range(10):
        logs.push("t", number)
    browser = await served.visitor()
    begun, gate = asyncio.Event(), asyncio.Event()
    push = served.admin.schedule.push

    async def slow(job: NewJob) -> object:
        begun.set()
        await gate.wait()
        return await push(job)

    monkeypatch.setattr(served.admin.schedule, "push", slow)
    await _push_again(browser, logs)
    await browser.see(f"/replay?{logs.query}", "Pushing again")
    await begun.wait()
    other = await browser.get("/replay?from=2020-01-01T00:00")
    assert (other.status, "Another replay is pushing" in other.words) == (409, True)
    assert (await browser.post("/replay/stop")).status == 303
    gate.set()
    await browser.see(f"/replay?{logs.query}", "Stopped", "Pushed again 2")
    await _push_again(browser, logs)
    await browser.see(f"/replay?{logs.query}", "Pushed again 8", "Were still there 2")


async def test_reading_can_be_stopped(
    served: Served, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.push("t", 1)
    gate, find = threading.Event(), replay_work.Replay.find

    def slow(self: replay_work.Replay) -> object:
        gate.wait(20)
        return find(self)

    monkeypatch.setattr(replay_work.Replay, "find", slow)
    browser = await served.visitor()
    try:
        await browser.see(f"/replay?{logs.query}", "Reading the logs")
        assert (await browser.post("/replay/stop")).status == 303
    finally:
        gate.set()
    page = await browser.see(f"/replay?{logs.query}", "Stopped")
    assert "Once more" not in page.words
    assert (await browser.post("/replay/stop")).status == 409


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from=", "is needed"),
        ("from=yesterday", "must be a time like"),
        ("from=2026-01-02T00:00&to=2026-01-01T00:00", "must be later"),
        ("from=2026-01-01T00:00&topic=%3Cb%3E", "is no name of a topic"),
        ("from=9999999-01-01", "must be a time like"),
    ],
)
async def test_a_faulty_window_is_told(served: Served, query: str, words: str) -> None:
    reply = await (await served.visitor()).get(f"/replay?{query}")
    assert (reply.status, words in reply.words) == (422, True)
    assert_is_harmless(reply)


async def test_nothing_is_pushed_that_was_not_looked_at(served: Served, logs: Logs) -> None:
    logs.push("t", 1)
    browser = await served.visitor()
    for fields in ({}, {"from_ms": "1", "to_ms": "2"}, {"from_ms": "x", "to_ms": "9" * 40}):
        assert (await browser.post("/replay/push", fields)).status == 409
    assert await served.admin.schedule.find("t", "1") is None


async def test_a_viewer_sees_what_is_missing_and_pushes_nothing(served: Served, logs: Logs) -> None:
    logs.push("t", 1)
    viewer = await served.visitor("viewer")
    page = await viewer.see(f"/replay?{logs.query}", "1 job is missing")
    assert "/replay/push" not in page.text


async def test_hostile_logs_are_only_text(served: Served, logs: Logs) -> None:
    logs.push(HOSTILE, 1, id_=HOSTILE)
    (logs.folder / f"notify_{day_stamp(logs.at_ms)}.txt").write_text("<script>\n{}\n")
    browser = await served.visitor()
    page = await browser.see(f"/replay?{logs.query}", "1 job is missing", "broken lines")
    assert_is_harmless(page)
    await _push_again(browser, logs)
    assert_is_harmless(await browser.see(f"/replay?{logs.query}", "Not pushed 1"))
