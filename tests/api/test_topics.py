"""The calls about topics."""

from __future__ import annotations

import json

import pytest

from dq.core.errors import DatabaseAway
from tests.api.conftest import Served, Start, assert_problem

DOC = {"name": "close unpaid orders", "callback": "http://127.0.0.1/x", "delay": 600}


async def test_put_makes_then_replaces_and_get_answers_the_same(api: Served) -> None:
    made = await api.call("PUT", "/v1/topics/order_close", DOC)
    assert made.status == 201
    assert made.doc.items() >= {"topic": "order_close", "max_retries": 10, **DOC}.items()
    replaced = await api.call("PUT", "/v1/topics/order_close", {"delay": 1})
    assert (replaced.status, replaced.doc["callback"]) == (200, None)
    got = await api.call("GET", "/v1/topics/order_close")
    assert (got.status, got.doc) == (200, replaced.doc)


async def test_what_was_got_can_be_put_back_with_its_secret(api: Served) -> None:
    secret = "whsec_" + "QUJD" * 8
    await api.call("PUT", "/v1/topics/s", {"secret": secret})
    got = await api.call("GET", "/v1/topics/s")
    assert secret.encode() not in got.raw
    assert (await api.call("PUT", "/v1/topics/s", got.raw)).status == 200
    assert api.book.topics["s"].secret == secret


async def test_retries_default_to_the_setting(start_api: Start) -> None:
    api = await start_api(DQ_MAX_RETRIES="3")
    assert (await api.call("PUT", "/v1/topics/a", {})).doc["max_retries"] == 3


async def test_the_topic_in_the_body_must_be_the_one_in_the_path(api: Served) -> None:
    assert (await api.call("PUT", "/v1/topics/a", {"topic": "a"})).status == 201
    reply = await api.call("PUT", "/v1/topics/a", {"topic": "b"})
    assert_problem(reply, 422, "invalid", "topic")


async def test_every_mistake_is_told_at_once(api: Served) -> None:
    doc = {"callback": "ftp://x", "timeout": 0, "retry_if": "{res.", "enabeld": True}
    reply = await api.call("PUT", "/v1/topics/a", doc)
    errors = {error["field"] for error in reply.doc["errors"]}
    assert reply.status == 422 and errors == set(doc)
    assert "enabled" in reply.raw.decode()


@pytest.mark.parametrize("name", ["a%20b", "%E6%97%A5", "a%2Fb", "t" * 129, ".", "..", "%2E%2e"])
async def test_a_bad_name_is_refused(api: Served, name: str) -> None:
    reply = await api.call("PUT", f"/v1/topics/{name}", {})
    assert_problem(reply, 422, "invalid", "topic")


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_name_that_addresses_lose_is_refused_with_the_remedy(
    api: Served, name: str
) -> None:
    put = await api.call("PUT", f"/v1/topics/{name.replace('.', '%2E')}", {})
    pushed = await api.call("POST", "/v1/jobs", {"topic": name, "body": 1})
    for reply in (put, pushed):
        (fault,) = reply.doc["errors"]
        assert fault["field"] == "topic" and fault["message"].endswith("take another name")
        assert reply.status == 422 and f"can't be '{name}'" in fault["message"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [(b"{", 400), (b"\xff", 400), (b'{"name":"\\ud800"}', 422), (b"[]", 422), (b"[" * 9999, 422)],
)
async def test_a_document_that_can_not_be_read_is_refused(
    api: Served, raw: bytes, status: int
) -> None:
    reply = await api.call("PUT", "/v1/topics/a", raw)
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")


async def test_put_wants_json_of_bounded_size(api: Served) -> None:
    text = await api.call("PUT", "/v1/topics/a", b"{}", Content_Type="text/plain")
    assert_problem(text, 415, "media-type")
    huge = json.dumps({"name": "x" * (1 << 20)}).encode()
    assert_problem(await api.call("PUT", "/v1/topics/a", huge), 413, "too-large")


async def test_delete_tells_whether_there_was_one(api: Served) -> None:
    reply = await api.call("DELETE", "/v1/topics/t")
    assert (reply.status, reply.doc) == (200, {"result": "deleted"})
    assert_problem(await api.call("DELETE", "/v1/topics/t"), 404, "topic-unknown")
    assert_problem(await api.call("GET", "/v1/topics/t"), 404, "topic-unknown")
    assert_problem(await api.push(topic="t"), 404, "topic-unknown")


async def test_the_list_is_sorted_and_whole(api: Served) -> None:
    for name in ("b", "a.1", "A_2"):
        await api.call("PUT", f"/v1/topics/{name}", {})
    doc = (await api.call("GET", "/v1/topics")).doc
    assert [topic["topic"] for topic in doc["data"]] == ["A_2", "a.1", "b", "t"]
    assert (doc["has_more"], doc["next_cursor"]) == (False, None)


async def test_without_the_database_topics_are_read_but_not_changed(api: Served) -> None:
    api.book.failure = DatabaseAway("timed out")
    assert_problem(await api.call("PUT", "/v1/topics/a", {}), 503, "database-away")
    assert_problem(await api.call("DELETE", "/v1/topics/t"), 503, "database-away")
    assert (await api.call("GET", "/v1/topics/t")).status == 200
