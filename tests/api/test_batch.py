"""POST /v1/jobs/batch: each job for itself, in order."""

from __future__ import annotations

import json

import pytest

from dq.core.errors import NodeAway
from dq.core.topic import Topic
from tests.api.conftest import Reply, Served, assert_problem


async def batch(api: Served, *jobs: object) -> Reply:
    return await api.call("POST", "/v1/jobs/batch", {"jobs": jobs})


async def test_each_job_has_its_result_in_order(api: Served) -> None:
    reply = await batch(api, *({"topic": "t", "id": str(n), "body": n} for n in range(50)))
    assert reply.status == 200
    results = reply.doc["results"]
    assert [result["id"] for result in results] == [str(n) for n in range(50)]
    assert results[0] == {
        "topic": "t",
        "id": "0",
        "due": api.schedule.jobs["t", "0"].due_ms,
        "state": "delayed",
        "result": "created",
        "status": 201,
    }


async def test_one_bad_job_spoils_no_other(api: Served) -> None:
    api.book.topics["off"] = Topic(topic="off", enabled=False)
    api.schedule.failing_ids["away"] = NodeAway("n1")
    jobs = [
        {"topic": "t", "id": "good"},
        {"topic": "t", "dealy": 1},
        {"topic": "nobody"},
        {"topic": "off"},
        {"topic": "t", "body": "x" * 3000},
        {"topic": "t", "id": "away"},
        7,
        None,
        [],
        {"topic": "t", "id": "good", "on_duplicate": "reject"},
        {"topic": "t", "id": "last"},
    ]
    results = (await batch(api, *jobs)).doc["results"]
    assert [result["status"] for result in results] == [
        *(201, 422, 404, 409, 413, 503, 422, 422, 422, 409, 201)
    ]
    assert results[1]["errors"][0]["field"] == "dealy"
    assert (results[5]["topic"], results[5]["id"]) == ("t", "away")
    assert results[5]["retry_after"] > 0
    assert set(api.schedule.jobs) == {("t", "good"), ("t", "last")}


async def test_half_a_surrogate_pair_spoils_its_own_job_alone(api: Served) -> None:
    bodies = [b'"\\ud83d\\ude00"', b'"cut \\ud83d"', b'"\\\\ud83d \\ufdd0"', b'"\\udc00"', b'"ok"']
    entries = b",".join(
        b'{"topic":"t","id":"%d","body":%s}' % (n, body) for n, body in enumerate(bodies)
    )
    reply = await api.call("POST", "/v1/jobs/batch", b'{"jobs":[%s]}' % entries)
    results = reply.doc["results"]
    assert [result["status"] for result in results] == [201, 422, 201, 422, 201]
    assert "\\ud83d" in results[1]["errors"][0]["message"]
    assert [job.body for job in api.schedule.pushed] == [bodies[0], bodies[2], bodies[4]]


async def test_of_two_jobs_with_one_id_the_later_wins(api: Served) -> None:
    results = (await batch(api, *({"topic": "t", "id": "1", "body": n} for n in range(9)))).doc
    assert [result["result"] for result in results["results"]] == ["created"] + ["replaced"] * 8
    assert [job.body for job in api.schedule.pushed] == [b"%d" % n for n in range(9)]


async def test_bodies_are_kept_byte_for_byte(api: Served) -> None:
    body = b'{"big" : 18446744073709551616 , "a":1,"a":2}'
    await api.call("POST", "/v1/jobs/batch", b'{"jobs":[{"topic":"t","body": %s }]}' % body)
    assert api.schedule.pushed[0].body == body


async def test_a_thousand_jobs_are_taken_and_no_more(api: Served) -> None:
    many = [{"topic": "t", "id": str(n)} for n in range(1001)]
    assert len((await batch(api, *many[:1000])).doc["results"]) == 1000
    assert_problem(await batch(api, *many), 422, "invalid", "jobs")
    assert len(api.schedule.jobs) == 1000


async def test_no_jobs_are_no_results(api: Served) -> None:
    assert (await batch(api)).doc == {"results": []}


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"jobs":[{"topic":"t"},]}', 400),
        (b'{"jobs":[{"topic":"t"}', 400),
        (b'{"jobs":[{"topic":"t","body":"\\ud800"}, nonsense]}', 400),
        (b'{"jobs":[{"topic":"t","body":NaN}]}', 400),
        (b'{"jobs":"\xff"}', 400),
        (b'{"jobs":{}}', 422),
        (b'{"job":[]}', 422),
        (b'{"jobs":["\\ud800"],"x":"\\ud800"}', 422),
        (b"[]", 422),
        (b'{"jobs":' + b"[" * 5000, 422),
    ],
)
async def test_a_batch_that_is_no_batch_is_refused_as_a_whole(
    api: Served, raw: bytes, status: int
) -> None:
    reply = await api.call("POST", "/v1/jobs/batch", raw)
    assert_problem(
        reply, status, "malformed" if status == 400 else "invalid", *_fields_of(reply, status)
    )
    assert api.schedule.jobs == {}


def _fields_of(reply: Reply, status: int) -> list[str]:
    """422 names what is wrong, whatever it is; 400 can't."""
    fields = [error["field"] for error in reply.doc.get("errors", [])]
    assert bool(fields) == (status == 422)
    return fields


async def test_a_batch_may_be_larger_than_one_push(api: Served) -> None:
    jobs = [{"topic": "t", "body": "x" * 1900} for _ in range(1000)]
    assert len(json.dumps(jobs)) > 1_900_000
    results = (await batch(api, *jobs)).doc["results"]
    assert {result["status"] for result in results} == {201}
