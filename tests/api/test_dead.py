"""/v1/dead: many dead jobs at once, on a real journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dq.api import deps
from dq.core.errors import NodeAway
from dq.core.topic import Topic
from dq.db.database import Database
from dq.db.dead_letters import DeadLetters
from dq.db.journal_store import JournalStore
from dq.db.migrate import migrate
from dq.db.rows import State
from dq.journal.dead import DeadJobs
from dq.queue.records import digest_of
from tests.api import conftest
from tests.api.conftest import Served, assert_problem
from tests.sql import journal
from tests.sql.journal import START, Writer

DIED_MS = START // 1000


class DeadServed(Served):
    """The API with dead jobs in a database of its own."""

    journal_store: JournalStore
    writer: Writer
    at = 0

    async def kill(self, id_: str, *, topic: str = "t", died_s: int = 1, **body: Any) -> None:
        self.at += 10
        push = self.writer.push(id_, self.at, topic=topic, **body)
        at = died_s * 1_000_000 + self.at
        self.writer.change(push, at, State.DEAD, attempt=2, status=500, detail="HTTP 500")
        await self.writer.ship()


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DeadServed]:
    assert journal.digest_of("t", "x") == digest_of("t", "x")
    url = f"sqlite+aiosqlite:///{tmp_path / 'dq.db'}"
    migrate(url)
    database = Database(url)
    await database.open()
    served = DeadServed()
    served.journal_store = JournalStore(database, digest_of)
    served.writer = Writer(served.journal_store, "w")
    letters = DeadLetters(database)
    dead = DeadJobs(letters, served.journal_store, served.schedule, served.book, tmp_path / "log")
    monkeypatch.setattr(conftest, "Api", lambda *parts: deps.Api(*parts, dead=dead))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        await served.start(stack)
        yield served


async def redrive(api: DeadServed, **fields: Any) -> Any:
    reply = await api.call("POST", "/v1/dead/redrive", fields)
    assert reply.status == 200, reply.raw
    return reply.doc


async def test_all_are_redriven_with_a_count(api: DeadServed) -> None:
    for number in range(250):
        await api.kill(f"a{number}", body=b'{"n":%d}' % number, bkey="k", priority=0)
    doc = await redrive(api)
    assert doc == {
        "matched": 250,
        "redriven": 250,
        "gone": 0,
        "failed": 0,
        "reasons": [],
        "next_cursor": None,
        "has_more": False,
    }
    job = api.schedule.jobs["t", "a7"]
    assert (job.body, job.key, job.priority, job.on_duplicate) == (b'{"n":7}', "k", 0, "reject")
    assert (await redrive(api))["gone"] == 250, "they are on the schedule already"


async def test_only_what_is_asked_for_is_redriven(api: DeadServed) -> None:
    api.book.topics["u"] = Topic(topic="u", callback="http://127.0.0.1/")
    await api.kill("early", died_s=1)
    await api.kill("late", died_s=100)
    await api.kill("other", topic="u", died_s=100)
    assert (await redrive(api, topic="u"))["redriven"] == 1
    assert (await redrive(api, topic="t", **{"from": DIED_MS + 50_000}))["redriven"] == 1
    assert set(api.schedule.jobs) == {("u", "other"), ("t", "late")}
    assert (await redrive(api, q="earl", to="2255-01-01T00:00:00Z"))["redriven"] == 1
    assert (await redrive(api, topic="nobody"))["matched"] == 0


async def test_a_limit_bounds_a_call_and_the_cursor_goes_on(api: DeadServed) -> None:
    for number in range(5):
        await api.kill(f"a{number}")
    first = await redrive(api, limit=2)
    assert (first["matched"], first["has_more"]) == (2, True)
    assert set(api.schedule.jobs) == {("t", "a4"), ("t", "a3")}, "the latest deaths first"
    rest = await redrive(api, cursor=first["next_cursor"])
    assert (rest["redriven"], rest["has_more"]) == (3, False)


async def test_what_fails_is_counted_with_its_reason_and_spoils_no_other(api: DeadServed) -> None:
    await api.kill("a")
    await api.kill("x", topic="gone")
    api.book.topics["off"] = Topic(topic="off", enabled=False)
    await api.kill("y", topic="off")
    doc = await redrive(api)
    assert (doc["redriven"], doc["failed"]) == (1, 2)
    assert sorted(reason.split("'")[1] for reason in doc["reasons"]) == ["gone", "off"]


async def test_a_node_that_is_away_ends_the_call_early(api: DeadServed) -> None:
    for number in range(250):
        await api.kill(f"a{number}")
    api.schedule.failing_ids["a249"] = NodeAway("it")
    doc = await redrive(api)
    assert (doc["matched"], doc["redriven"], doc["failed"]) == (100, 99, 1)
    assert "it" in doc["trouble"] and doc["has_more"]
    api.schedule.failing_ids.clear()
    doc = await redrive(api)
    assert (doc["redriven"], doc["gone"]) == (151, 99)


async def test_dropped_jobs_are_forgotten(api: DeadServed) -> None:
    for id_ in ("a", "b/c", "d"):
        await api.kill(id_)
    assert (await api.call("DELETE", "/v1/dead/t/b%2Fc")).doc == {"result": "dropped"}
    assert_problem(await api.call("DELETE", "/v1/dead/t/b%2Fc"), 404, "job-unknown")
    assert_problem(await api.call("DELETE", "/v1/dead/t/%20"), 404, "job-unknown")
    doc = (await api.call("POST", "/v1/dead/drop", {"topic": "t", "q": "a"})).doc
    assert (doc["matched"], doc["dropped"]) == (1, 1)
    assert [job["id"] for job in (await api.call("GET", "/v1/dead")).doc["data"]] == ["d"]
    assert await api.journal_store.history("t", "a") is None


async def test_they_are_listed_the_latest_death_first(api: DeadServed) -> None:
    await api.kill("a", bkey="k")
    await api.kill("b")
    page = (await api.call("GET", "/v1/dead?limit=1")).doc
    assert [job["id"] for job in page["data"]] == ["b"] and page["has_more"]
    page = (await api.call("GET", f"/v1/dead?cursor={page['next_cursor']}&topic=t&q=k")).doc
    told = page["data"][0]
    assert (told["id"], told["status"], told["detail"], told["key"]) == ("a", 500, "HTTP 500", "k")
    assert (page["has_more"], told["attempt"]) == (False, 2)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topic": "a b"}, "topic"),
        ({"tpoic": "t"}, "tpoic"),
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"from": "yesterday"}, "from"),
        ({"to": -1}, "to"),
        ({"q": ""}, "q"),
        ({"cursor": "x"}, "cursor"),
        ([], ""),
    ],
)
async def test_a_bad_document_is_refused(api: DeadServed, fields: Any, field: str) -> None:
    await api.kill("a")
    for act in ("redrive", "drop"):
        reply = await api.call("POST", f"/v1/dead/{act}", fields)
        assert_problem(reply, 422, "invalid", field)
    assert api.schedule.jobs == {} and await api.journal_store.history("t", "a") is not None
    assert_problem(await api.call("GET", "/v1/dead?state=dead"), 422, "invalid", "state")


async def test_one_call_at_a_time(api: DeadServed) -> None:
    await api.kill("a")
    api.schedule.gate.clear()
    first = asyncio.create_task(api.call("POST", "/v1/dead/redrive"))
    async with asyncio.timeout(10):
        while not api.schedule.waiting:
            await asyncio.sleep(0.01)
    assert_problem(await api.call("POST", "/v1/dead/redrive"), 409, "dead-running")
    api.schedule.gate.set()
    assert (await first).doc["redriven"] == 1
