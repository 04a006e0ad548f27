"""Requests that lie, drip, break off or ask for what is not there."""

from __future__ import annotations

import asyncio
import re

import pytest

from dq.api import wire
from dq.api.deps import Commits
from tests.api.conftest import Reply, Served, assert_problem
from tests.support import wait_until_async

HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def test_a_body_that_is_said_to_be_too_large_is_not_read(api: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(HEAD + b"Content-Length: 100000000\r\n\r\n{")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in head
    assert b"application/problem+json" in head
    writer.close()


async def test_a_body_in_chunks_is_cut_at_the_limit(api: Served) -> None:
    chunk = b"10000\r\n%s\r\n" % (b"x" * 0x10000)
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    answering = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
    sent = 0
    while not answering.done():
        writer.write(chunk)
        await writer.drain()
        sent += len(chunk)
    assert (await answering).startswith(b"HTTP/1.1 413 ") and sent < 10_000_000
    writer.close()


async def test_a_body_in_chunks_is_read_to_its_end(api: Served) -> None:
    chunks = b'9\r\n{"topic":\r\n4\r\n"t"}\r\n0\r\n\r\n'
    answer = await api.speak(
        HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    )
    assert answer.startswith(b"HTTP/1.1 201 ")


async def test_a_body_that_comes_byte_by_byte_is_the_same(api: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for byte in HEAD + b'Content-Length: 13\r\n\r\n{"topic":"t"}':
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.readline()).startswith(b"HTTP/1.1 201 ")
    writer.close()


async def test_a_broken_chunk_is_refused(api: Served) -> None:
    answer = await api.speak(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}")
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert api.schedule.pushed == []


async def test_what_is_no_http_is_a_400_and_no_error_of_ours(
    api: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"X: " + b"x" * 9000 + b"\r\n"):
        assert b" 400 " in await api.speak(garbage)
    assert caplog.text == ""


async def test_half_a_body_pushes_nothing(api: Served, caplog: pytest.LogCaptureFixture) -> None:
    await api.speak(HEAD + b'Content-Length: 100\r\n\r\n{"topic":"t"}', then_close=True)
    await wait_until_async(api.has_lost_its_clients)
    assert api.schedule.pushed == [] and api.schedule.waiting == 0
    assert "unexpected" not in caplog.text


async def test_a_body_that_does_not_come_is_408(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "BODY_DEADLINE_S", 0.05)
    answer = await api.speak(HEAD + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ") and b"application/problem+json" in answer


async def test_a_connection_is_kept_and_answers_in_order(api: Served) -> None:
    one = HEAD + b'Content-Length: 22\r\n\r\n{"topic":"t","id":"1"}'
    bad = HEAD + b"Content-Length: 1\r\n\r\n{"
    last = one.replace(b"Host", b"Connection: close\r\nHost")
    answer = await api.speak(one + bad + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"201", b"400", b"200"]


async def test_a_path_that_is_not_there_is_a_404_problem(api: Served) -> None:
    for path in ("/", "/v1", "/v1/job", "/v1/jobs/t", "/v2/jobs", "/%00", "/v1/jobs//1"):
        assert_problem(await api.call("GET", path), 404, "not-found")


async def test_a_method_that_is_not_taken_is_a_405_problem_with_allow(api: Served) -> None:
    reply = await api.call("PUT", "/v1/jobs")
    assert_problem(reply, 405, "method-not-allowed")
    assert set(reply.headers["Allow"].split(",")) >= {"GET", "POST"}
    assert_problem(await api.call("OPTIONS", "/v1/jobs"), 405, "method-not-allowed")
    assert_problem(await api.call("PROPFIND", "/v1/topics"), 405, "method-not-allowed")


async def test_a_slash_at_the_end_is_forgiven(api: Served) -> None:
    assert (await api.call("POST", "/v1/jobs/", {"topic": "t", "id": "1"})).status == 201
    assert (await api.call("GET", "/v1/jobs/t/1/")).doc["id"] == "1"


async def test_every_answer_says_what_it_is_and_nothing_of_the_software(api: Served) -> None:
    replies: list[Reply] = [
        await api.push(topic="t"),
        await api.push(topic="nobody"),
        await api.call("GET", "/nothing"),
        await api.call("GET", "/healthz"),
    ]
    for reply in replies:
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Server"] == "dq"
        assert "json" in reply.headers["Content-Type"]


async def test_a_commit_goes_on_when_its_caller_is_cancelled() -> None:
    commits, gate, done = Commits(), asyncio.Event(), []

    async def commit() -> None:
        await gate.wait()
        done.append(1)

    caller = asyncio.create_task(commits.run(commit()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    gate.set()
    await commits.finish()
    assert done == [1]
