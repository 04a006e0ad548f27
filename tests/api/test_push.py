"""POST /v1/jobs over HTTP: what is answered, and what the schedule is given."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dq.core import clock
from dq.core.errors import DiskFull, NodeAway, NodeFull, Overloaded
from dq.core.topic import Topic
from tests.api.conftest import Served, Start, assert_problem
from tests.support import wait_until_async


async def test_a_new_job_is_201_and_the_answer_says_what_was_made(api: Served) -> None:
    reply = await api.push(topic="t", id="42", body={"n": 1}, delay=600)
    assert (reply.status, reply.headers["Content-Type"]) == (201, "application/json")
    [job] = api.schedule.pushed
    assert reply.doc == {
        "topic": "t",
        "id": "42",
        "due": job.due_ms,
        "state": "delayed",
        "result": "created",
    }
    assert 599_000 < job.due_ms - clock.now_ms() <= 600_000


async def test_without_an_id_the_answer_tells_the_one_made(api: Served) -> None:
    first, second = await api.push(topic="t"), await api.push(topic="t")
    assert len(first.doc["id"]) == 26 and first.doc["id"] != second.doc["id"]


async def test_a_second_push_replaces_and_the_same_instant_again_is_kept(api: Served) -> None:
    await api.push(topic="t", id="1", body=1)
    replaced = await api.push(topic="t", id="1", body=2, due=5_000_000_000_000)
    kept = await api.push(topic="t", id="1", body=2, due=5_000_000_000_000)
    assert (replaced.status, replaced.doc["result"]) == (200, "replaced")
    assert (kept.status, kept.doc["result"]) == (200, "kept")


async def test_a_push_with_an_instant_is_kept_when_it_is_repeated_after_that_instant(
    api: Served,
) -> None:
    """A producer that got a 503 repeats the same push, perhaps when its time has come."""
    past = clock.now_ms() - 1000
    assert (await api.push(topic="t", id="1", due=past)).doc["result"] == "created"
    assert (await api.push(topic="t", id="1", due=past)).doc["result"] == "kept"


async def test_a_duplicate_that_asked_to_be_rejected_is_409(api: Served) -> None:
    await api.push(topic="t", id="1")
    reply = await api.push(topic="t", id="1", on_duplicate="reject")
    doc = assert_problem(reply, 409, "duplicate-job")
    assert (doc["topic"], doc["id"]) == ("t", "1")


async def test_unknown_and_off_line_topics_are_told_apart(api: Served) -> None:
    api.book.topics["off"] = Topic(topic="off", enabled=False)
    assert_problem(await api.push(topic="nobody"), 404, "topic-unknown")
    assert_problem(await api.push(topic="off"), 409, "topic-offline")
    assert api.schedule.pushed == []


async def test_a_topic_put_by_another_process_counts_at_once(api: Served) -> None:
    api.book.elsewhere += [Topic(topic="new"), Topic(topic="t", enabled=False)]
    assert (await api.push(topic="new")).status == 201
    assert_problem(await api.push(topic="t"), 409, "topic-offline")


async def test_a_paused_topic_takes_jobs(api: Served) -> None:
    api.book.topics["p"] = Topic(topic="p", paused=True)
    assert (await api.push(topic="p")).status == 201


@pytest.mark.parametrize(
    ("failure", "name"),
    [
        (NodeAway("127.0.0.1:6379"), "node-away"),
        (Overloaded(), "overloaded"),
        (DiskFull(), "disk-full"),
        (NodeFull(), "node-full"),
    ],
)
async def test_what_is_out_of_order_is_503_and_says_when_and_with_which_id_to_repeat(
    api: Served, failure: Exception, name: str
) -> None:
    api.schedule.failure = failure
    reply = await api.push(topic="t")
    doc = assert_problem(reply, 503, name)
    assert int(reply.headers["Retry-After"]) == doc["retry_after"] > 0
    api.schedule.failure = None
    assert (await api.push(topic="t", id=doc["id"])).status == 201


async def test_what_nobody_foresaw_is_a_500_that_tells_nothing(
    api: Served, caplog: pytest.LogCaptureFixture
) -> None:
    api.schedule.failure = RuntimeError("password=hunter2")
    reply = await api.push(topic="t", id="1")
    assert_problem(reply, 500, "unexpected")
    assert b"hunter2" not in reply.raw
    assert "hunter2" in caplog.text


async def test_bad_json_is_400_and_bad_fields_are_422(api: Served) -> None:
    assert_problem(await api.push(b'{"topic": "t",}'), 400, "malformed")
    assert_problem(await api.push(topic="t", dealy=1, id=""), 422, "invalid", "dealy", "id")


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", 'Application/JSON; charset="UTF-8"', "application/json;"],
)
async def test_json_may_name_its_charset(api: Served, content_type: str) -> None:
    reply = await api.call("POST", "/v1/jobs", {"topic": "t"}, Content_Type=content_type)
    assert reply.status == 201


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "application/jsonp",
        "application/json; charset=gbk",
        "",
    ],
)
async def test_any_other_media_type_is_415(api: Served, content_type: str) -> None:
    reply = await api.call("POST", "/v1/jobs", {"topic": "t"}, Content_Type=content_type)
    assert_problem(reply, 415, "media-type")


async def test_a_compressed_body_is_415(api: Served) -> None:
    reply = await api.call("POST", "/v1/jobs", b"\x1f\x8b", Content_Encoding="gzip")
    assert_problem(reply, 415, "media-type")


async def test_a_body_at_the_limit_is_taken_and_beyond_it_is_413(api: Served) -> None:
    assert (await api.push(topic="t", body="x" * 1998)).status == 201
    assert_problem(await api.push(topic="t", body="x" * 1999), 413, "too-large")


async def test_nine_hundred_levels_of_nesting_are_taken_and_thousands_are_422(api: Served) -> None:
    assert (await api.push(b'{"topic":"t","body":%s%s}' % (b"[" * 900, b"]" * 900))).status == 201
    for path in ("/v1/jobs", "/v1/jobs/batch"):
        deep = b'{"topic":"t","body":' + b"[" * 5000
        assert_problem(await api.call("POST", path, deep), 422, "invalid", "")


async def test_a_hundred_pushes_of_one_id_make_one_job(api: Served) -> None:
    replies = await asyncio.gather(*(api.push(topic="t", id="1", body=n) for n in range(100)))
    results = [reply.doc["result"] for reply in replies]
    assert results.count("created") == 1 and results.count("replaced") == 99
    assert len(api.schedule.jobs) == 1


async def test_a_client_that_hangs_up_does_not_stop_the_commit(api: Served) -> None:
    api.schedule.gate.clear()
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    body = b'{"topic":"t","id":"1"}'
    writer.write(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await wait_until_async(lambda: api.schedule.waiting)
    writer.transport.abort()
    await wait_until_async(api.has_lost_its_clients)
    api.schedule.gate.set()
    await wait_until_async(lambda: ("t", "1") in api.schedule.jobs)


async def test_a_stop_waits_for_what_is_being_committed(start_api: Start) -> None:
    api = await start_api()
    api.schedule.gate.clear()
    asking = asyncio.create_task(api.push(topic="t", id="1"))
    await wait_until_async(lambda: api.schedule.waiting)
    stopping = asyncio.create_task(api.runner.cleanup())
    await wait_until_async(lambda: not api.runner.sites)
    api.schedule.gate.set()
    await stopping
    assert ("t", "1") in api.schedule.jobs
    assert (await asking).status == 201


async def test_every_printable_ascii_character_and_more_round_trips_through_json(
    api: Served,
) -> None:
    id = "".join(chr(code) for code in range(33, 127)) + "é日😀"
    assert (await api.push(topic="t", id=id)).doc["id"] == id
    assert ("t", id) in api.schedule.jobs


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.binary(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    ).map(lambda value: json.dumps({"topic": "t", "body": value}).encode())
)
async def test_no_bytes_are_answered_with_a_5xx(api: Served, raw: bytes) -> None:
    for path in ("/v1/jobs", "/v1/jobs/batch"):
        reply = await api.call("POST", path, raw)
        assert reply.status < 500
        assert reply.status < 300 or reply.headers["Content-Type"] == "application/problem+json"
