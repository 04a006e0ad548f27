"""The calls about one job: look, cancel, another time, run now, redrive; and the names in URLs."""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest

from dq.core import clock
from dq.core.errors import DatabaseAway, NodeAway
from dq.queue.schedule import NewJob
from tests.api.conftest import Served, assert_problem
from tests.api.doubles import CREATED_MS, Entry, Record

HISTORY = [
    Entry(CREATED_MS, "delayed", 0, None, ""),
    Entry(CREATED_MS + 9, "delayed", 1, 500, "status 500"),
]
HISTORY_DOC = [
    {"at": CREATED_MS, "state": "delayed", "attempt": 0, "status": None, "detail": ""},
    {
        "at": CREATED_MS + 9,
        "state": "delayed",
        "attempt": 1,
        "status": 500,
        "detail": "status 500",
    },
]


async def test_an_unfinished_job_comes_from_its_node_with_its_history(api: Served) -> None:
    body = b'{"big":18446744073709551616, "tiny":1e-999,"a":1,"a":2}'
    api.schedule.jobs["t", "1"] = NewJob("t", "1", body, 17, priority=0, key="k")
    api.journal.add(Record("t", "1", "delayed", history=HISTORY))
    reply = await api.call("GET", "/v1/jobs/t/1")
    assert reply.status == 200 and body in reply.raw
    doc = reply.doc
    del doc["body"]
    assert doc == {
        "topic": "t",
        "id": "1",
        "state": "delayed",
        "due": 17,
        "attempt": 0,
        "priority": "high",
        "key": "k",
        "created": CREATED_MS,
        "history": HISTORY_DOC,
    }


async def test_a_finished_job_comes_from_the_journal(api: Served) -> None:
    api.journal.add(Record("t", "1", "dead", attempt=11, body=b'"x"', history=HISTORY))
    doc = (await api.call("GET", "/v1/jobs/t/1")).doc
    assert (doc["state"], doc["attempt"], doc["body"], doc["key"]) == ("dead", 11, "x", None)
    assert doc["history"] == HISTORY_DOC


async def test_an_unfinished_job_is_told_without_the_database(api: Served) -> None:
    await api.push(topic="t", id="1")
    api.journal.failure = DatabaseAway("timed out")
    doc = (await api.call("GET", "/v1/jobs/t/1")).doc
    assert (doc["state"], doc["history"]) == ("delayed", [])
    assert "timed out" in doc["history_error"]


async def test_a_job_that_may_be_on_an_absent_node_is_503_and_not_404(api: Served) -> None:
    api.schedule.failure = NodeAway("n1")
    for method, path in [
        ("GET", "/v1/jobs/t/1"),
        ("DELETE", "/v1/jobs/t/1"),
        ("POST", "/v1/jobs/t/1/run"),
        ("POST", "/v1/jobs/t/1/redrive"),
    ]:
        reply = await api.call(method, path)
        assert_problem(reply, 503, "node-away")
        assert reply.headers["Retry-After"]


async def test_a_finished_job_without_the_database_is_503(api: Served) -> None:
    api.journal.failure = DatabaseAway("timed out")
    reply = await api.call("GET", "/v1/jobs/t/1")
    assert_problem(reply, 503, "database-away")
    assert reply.headers["Retry-After"]


async def test_a_job_nobody_knows_is_404_for_every_call(api: Served) -> None:
    for method, path in [
        ("GET", "/v1/jobs/t/1"),
        ("DELETE", "/v1/jobs/t/1"),
        ("POST", "/v1/jobs/t/1/run"),
        ("POST", "/v1/jobs/t/1/redrive"),
        ("GET", "/v1/jobs/t/%20"),
        ("DELETE", "/v1/jobs/t/%00"),
        ("GET", "/v1/jobs/no%20topic/1"),
    ]:
        assert_problem(await api.call(method, path), 404, "job-unknown")
    moved = await api.call("PATCH", "/v1/jobs/t/1", {"delay": 1})
    assert_problem(moved, 404, "job-unknown")


async def test_cancel_tells_whether_a_callback_is_under_way(api: Served) -> None:
    await api.push(topic="t", id="1")
    await api.push(topic="t", id="2")
    api.schedule.running.add(("t", "2"))
    first = await api.call("DELETE", "/v1/jobs/t/1")
    assert (first.status, first.doc) == (200, {"result": "cancelled"})
    assert (await api.call("DELETE", "/v1/jobs/t/2")).doc == {"result": "running"}
    assert_problem(await api.call("DELETE", "/v1/jobs/t/1"), 404, "job-unknown")


async def test_another_due_time_is_answered_as_it_is_now(api: Served) -> None:
    await api.push(topic="t", id="1")
    due = 5_000_000_000_000
    reply = await api.call("PATCH", "/v1/jobs/t/1", {"due": due})
    assert reply.status == 200
    assert reply.doc == {
        "topic": "t",
        "id": "1",
        "due": due,
        "state": "delayed",
        "result": "rescheduled",
    }
    assert api.schedule.jobs["t", "1"].due_ms == due


async def test_a_bad_due_time_changes_nothing(api: Served) -> None:
    await api.push(topic="t", id="1", delay=60)
    before = api.schedule.jobs["t", "1"]
    for fields, named in [
        ({}, ("",)),
        ({"delay": -1}, ("delay",)),
        ({"due": 1, "delay": 1}, ("delay", "due")),
        ({"body": 1}, ("body",)),
    ]:
        reply = await api.call("PATCH", "/v1/jobs/t/1", fields)
        assert_problem(reply, 422, "invalid", *named)
    text = await api.call("PATCH", "/v1/jobs/t/1", b"{}", Content_Type="text/plain")
    assert_problem(text, 415, "media-type")
    assert api.schedule.jobs["t", "1"] is before


async def test_run_makes_it_due_now(api: Served) -> None:
    await api.push(topic="t", id="1", delay=3600)
    reply = await api.call("POST", "/v1/jobs/t/1/run")
    assert reply.status == 200
    assert abs(reply.doc["due"] - clock.now_ms()) < 5000


async def test_a_running_job_can_not_be_moved(api: Served) -> None:
    await api.push(topic="t", id="1")
    api.schedule.running.add(("t", "1"))
    assert_problem(await api.call("POST", "/v1/jobs/t/1/run"), 409, "job-running")
    moved = await api.call("PATCH", "/v1/jobs/t/1", {"delay": 1})
    assert_problem(moved, 409, "job-running")


async def test_a_dead_job_is_redriven_with_its_body_key_and_priority(api: Served) -> None:
    body = b'{"n" : 1.0}'
    api.journal.add(Record("t", "1", "dead", 9, 11, body, "high", "k"))
    reply = await api.call("POST", "/v1/jobs/t/1/redrive")
    assert (reply.status, reply.doc["result"], reply.doc["state"]) == (200, "redriven", "delayed")
    [job] = api.schedule.pushed
    assert (job.body, job.priority, job.key) == (body, 0, "k")
    assert abs(job.due_ms - clock.now_ms()) < 5000
    again = await api.call("POST", "/v1/jobs/t/1/redrive")
    assert_problem(again, 409, "job-not-dead")


async def test_only_the_dead_are_redriven(api: Served) -> None:
    await api.push(topic="t", id="waiting")
    api.journal.add(Record("t", "done", "done"))
    api.journal.add(Record("gone", "1", "dead"))
    for id in ("waiting", "done"):
        reply = await api.call("POST", f"/v1/jobs/t/{id}/redrive")
        assert_problem(reply, 409, "job-not-dead")
    assert_problem(await api.call("POST", "/v1/jobs/gone/1/redrive"), 404, "topic-unknown")


@pytest.mark.parametrize(
    "id",
    [
        *(string.ascii_letters + string.digits + string.punctuation),
        "😀",
        "日本語/ид?#é",
        "%2F",
        "%25",
        "%2f%252F%%",
        "..",
        ".",
        "../../etc/passwd",
        "a//b",
        "{id}",
        "batch",
        "run",
        "a+b&c=d;e",
        "'OR'1'='1",
        "𝕏" * 256,
    ],
)
async def test_an_id_round_trips_through_the_url(api: Served, id: str) -> None:
    path = f"/v1/jobs/t/{quote(id, safe='')}"
    assert (await api.push(topic="t", id=id)).status == 201
    assert (await api.call("GET", path)).doc["id"] == id
    moved = await api.call("PATCH", path, {"due": 5_000_000_000_000})
    assert moved.doc["id"] == id
    assert (await api.call("POST", path + "/run")).status == 200
    assert (await api.call("DELETE", path)).status == 200
    assert api.schedule.jobs == {}


async def test_an_id_may_be_quoted_in_full_or_in_lower_case(api: Served) -> None:
    await api.push(topic="t", id="a/é")
    assert (await api.call("GET", "/v1/jobs/%74/%61%2f%c3%a9")).doc["id"] == "a/é"


async def test_a_path_that_is_no_utf8_is_400(api: Served) -> None:
    assert_problem(await api.call("GET", "/v1/jobs/t/%ff"), 400, "malformed")


async def test_a_slash_that_was_not_quoted_is_404_with_the_remedy(api: Served) -> None:
    doc = assert_problem(await api.call("GET", "/v1/jobs/t/a/b"), 404, "not-found")
    assert "%2F" in doc["detail"]


async def test_names_that_differ_only_a_little_are_different_jobs(api: Served) -> None:
    ids = ["x", "X", "é", "e\u0301", "x.", "ｘ"]
    for id in ids:
        assert (await api.push(topic="t", id=id)).doc["result"] == "created"
    assert len(api.schedule.jobs) == len(ids)
