"""The front: where a request ends, in which order answers come, who waits, who is closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from dq.api import app, connection, front, wire
from dq.core.errors import NodeAway
from tests.api.conftest import Served
from tests.api.fronted import (
    TAIL,
    Client,
    Fronted,
    ids,
    push,
    request,
    statuses,
)
from tests.support import wait_until_async

CLOSE = b"Connection: close"


@pytest.fixture
async def api(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fronted]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "DRAIN_S", 0.1)
    monkeypatch.setattr(front, "LOOK_S", 0.02)
    async with AsyncExitStack() as stack:
        fronted = Fronted()
        await fronted.start(stack)
        yield fronted


def pushed(api: Served) -> list[str]:
    return [job.id for job in api.schedule.pushed]


# Where a request ends


@pytest.mark.parametrize("path", [b"/v1/jobs", b"/v1/jobs/batch"])
async def test_a_request_may_be_cut_anywhere(api: Fronted, path: bytes) -> None:
    job = b'{"topic":"t","id":"cut"}'
    data = request(job if path == b"/v1/jobs" else b'{"jobs":[%s]}' % job, path=path)
    client = await api.connect()
    for place in range(1, len(data)):
        await client.send(data[:place])
        while waiting_bytes(api) < place:
            await asyncio.sleep(0)
        await client.send(data[place:])
        assert ids(await client.answer()) == ["cut"]
    assert len(pushed(api)) == len(data) - 1


def waiting_bytes(api: Fronted) -> int:
    return sum(len(one._rest) for one in api.front.connections)


async def test_a_request_may_come_byte_by_byte(api: Fronted) -> None:
    client = await api.connect()
    for byte in push("1") + push("2", CLOSE):
        await client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert ids(await client.rest()) == ["1", "2"]


SMUGGLED = push("smuggled")
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"topic":"t","id":"1"}'


@pytest.mark.parametrize(
    "head",
    {
        "two lengths": b"Content-Length: 22\r\nContent-Length: 400\r\n\r\n",
        "the longer first": b"Content-Length: 400\r\nContent-Length: 22\r\n\r\n",
        "a list of lengths": b"Content-Length: 22, 22\r\n\r\n",
        "a signed length": b"Content-Length: +22\r\n\r\n",
        "a negative length": b"Content-Length: -22\r\n\r\n",
        "a hexadecimal length": b"Content-Length: 0x16\r\n\r\n",
        "digits of another script": b"Content-Length: \xd9\xa2\xd9\xa2\r\n\r\n",
        "an underscore": b"Content-Length: 2_2\r\n\r\n",
        "a space in it": b"Content-Length: 2 2\r\n\r\n",
        "a space before the colon": b"Content-Length : 22\r\n\r\n",
        "obs-fold": b"Content-Length:\r\n 22\r\n\r\n",
        "a folded second line": b"X: 1\r\n Content-Length: 400\r\nContent-Length: 22\r\n\r\n",
        "bare LF": b"Content-Length: 22\nX: 1\r\n\r\n",
        "bare LF to the end": b"Content-Length: 22\n\n",
        "bare CR": b"X: 1\rContent-Length: 400\r\nContent-Length: 22\r\n\r\n",
        "NUL in a value": b"X: a\x00b\r\nContent-Length: 22\r\n\r\n",
        "NUL in a name": b"X\x00: a\r\nContent-Length: 22\r\n\r\n",
        "no name": b": a\r\nContent-Length: 22\r\n\r\n",
        "no colon": b"Content\r\nContent-Length: 22\r\n\r\n",
        "DEL": b"X: \x7f\r\nContent-Length: 22\r\n\r\n",
        "length and chunks": b"Content-Length: 22\r\nTransfer-Encoding: chunked\r\n\r\n",
        "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 22\r\n\r\n",
        "chunks in disguise": b"Content-Length: 22\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "a bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "identity": b"Transfer-Encoding: identity\r\nContent-Length: 22\r\n\r\n",
    }.items(),
    ids=lambda item: item[0],
)
async def test_nothing_is_smuggled_in_the_body_of_another(
    api: Fronted, head: tuple[str, bytes]
) -> None:
    """What is doubtful is aiohttp's, and what aiohttp makes of it, it makes of it alone too."""
    body = BODY if b"400" not in head[1] else BODY + SMUGGLED
    plain = Served()
    async with AsyncExitStack() as stack:
        await plain.start(stack)
        for one in (api, plain):
            await one.speak(HEAD + head[1] + body, then_close=True)
        await wait_until_async(lambda: not api.front.connections)
        assert pushed(api) == pushed(plain)
        assert "smuggled" not in pushed(api)


@pytest.mark.parametrize("count", [101, 10_000])
async def test_too_many_header_lines_are_refused(api: Fronted, count: int) -> None:
    lines = [b"X-%d: %d" % (n, n) for n in range(count)]
    assert statuses(await api.speak(request(BODY, CLOSE, *lines)))[0] in (201, 400)
    assert count < 10_000 or pushed(api) == []


async def test_a_huge_header_is_refused(api: Fronted) -> None:
    for size in (7_000, 9_000, 1_000_000):
        client = await api.connect()
        client.writer.write(request(BODY, b"X: " + b"x" * size, CLOSE))
        assert statuses(await client.answer())[0] == (201 if size == 7_000 else 400)
        client.writer.close()


async def test_a_head_without_end_is_not_kept_for_ever(api: Fronted) -> None:
    client = await api.connect()
    client.writer.write(HEAD + b"X: " + b"x" * 100_000)
    assert statuses(await client.answer()) == [400]


async def test_a_request_at_the_limit_is_taken_and_one_beyond_it_is_not(api: Fronted) -> None:
    limit = api.front.pushes.limit_bytes
    assert statuses(await api.speak(request(BODY.ljust(limit), CLOSE))) == [201]
    client = await api.connect()
    await client.send(request(BODY.ljust(limit + 1)))
    assert statuses(await client.answer()) == [413]


async def test_a_job_whose_body_is_too_large_ends_the_connection(api: Fronted) -> None:
    large = request(json.dumps({"topic": "t", "body": "x" * 2_000}).encode())
    answer = await api.speak(push("1") + large)
    assert statuses(answer) == [201, 413] and answer.count(CLOSE) == 1


# Order


async def test_pipelined_requests_are_answered_in_order(api: Fronted) -> None:
    many = [str(number) for number in range(1_000)]
    answer = await api.speak(b"".join(push(id) for id in many[:-1]) + push(many[-1], CLOSE))
    assert ids(answer) == many and pushed(api) == many


async def test_a_quick_refusal_waits_for_the_slow_push_before_it(api: Fronted) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    await client.send(push("1") + request(b"{") + push("2", CLOSE))
    await wait_until_async(lambda: api.schedule.waiting == 2)
    api.schedule.gate.set()
    assert statuses(await client.rest()) == [201, 400, 201]


async def test_batches_and_pushes_keep_their_order(api: Fronted) -> None:
    batch = request(b'{"jobs":[{"topic":"t","id":"b"}]}', path=b"/v1/jobs/batch")
    answer = await api.speak(push("1") + batch + push("2") + batch + push("3", CLOSE))
    assert ids(answer) == ["1", "b", "2", "b", "3"]


async def test_only_so_many_wait_for_their_answer_at_once(api: Fronted) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    sending = asyncio.create_task(client.send(b"".join(push(str(n)) for n in range(2_000))))
    await wait_until_async(lambda: api.schedule.waiting == connection.MOST_PIPELINED)
    api.schedule.gate.set()
    for number in range(2_000):
        assert ids(await client.answer()) == [str(number)]
    await sending


async def test_a_client_that_does_not_read_is_not_read_from(api: Fronted) -> None:
    """Its answers pile up; it loses nothing."""
    client = await api.connect(buffer_bytes=4096)
    many = [f"{'x' * 200}{number}" for number in range(20_000)]
    requests = b"".join(push(id) for id in many)
    sending = asyncio.create_task(client.send(requests))
    await wait_until_async(lambda: any(one._is_congested for one in api.front.connections))
    assert len(pushed(api)) < len(many)
    answers = bytearray()
    while not answers.endswith(b'"created"}') or many[-1].encode() not in answers[-400:]:
        answers += await client.reader.read(1 << 20)
    await sending
    assert ids(bytes(answers)) == many


# Hand-over


@pytest.mark.parametrize("gap", [False, True], ids=["at once", "later"])
async def test_another_request_after_pushes_is_aiohttps(api: Fronted, gap: bool) -> None:
    client = await api.connect()
    await client.send(push("1"))
    if gap:
        assert ids(await client.answer()) == ["1"]
    get = b"GET /v1/jobs/t/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    await client.send(get + get.replace(b"GET", b"DELETE") + push("2") + TAIL)
    answer = await client.rest()
    assert statuses(answer) == [201] * (not gap) + [200, 200, 201, 200]
    assert pushed(api) == ["1", "2"] and not api.front.connections


async def test_a_handed_over_connection_waits_for_the_pushes_before(api: Fronted) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    await client.send(push("1") + push("2") + TAIL)
    await wait_until_async(lambda: api.schedule.waiting == 2)
    api.schedule.gate.set()
    answer = await client.rest()
    assert statuses(answer) == [201, 201, 200] and answer.endswith(b'{"status":"ok"}')


async def test_what_comes_during_the_hand_over_is_not_lost(api: Fronted) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    await client.send(push("1") + TAIL[:10])
    await wait_until_async(lambda: api.schedule.waiting)
    await client.send(TAIL[10:])
    api.schedule.gate.set()
    assert statuses(await client.rest()) == [201, 200]


async def test_chunks_and_expectations_work_after_a_push(api: Fronted) -> None:
    client = await api.connect()
    await client.send(push("1") + HEAD + b"Transfer-Encoding: chunked\r\n\r\n16\r\n" + BODY)
    await client.send(b"\r\n0\r\n\r\n")
    await client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 22\r\n\r\n")
    assert ids(await client.answer() + await client.answer()) == ["1", "1"]
    assert (await client.reader.readline()).startswith(b"HTTP/1.1 100 ")


# Who keeps dq waiting


@pytest.mark.parametrize("sent", [b"", b"P", HEAD, HEAD + b"Content-Length: 22\r\n\r\n{"])
async def test_what_does_not_come_to_its_end_is_closed(
    api: Fronted, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    for module, name in (
        (connection, "HEAD_DEADLINE_S"),
        (connection, "KEEPALIVE_S"),
        (wire, "BODY_DEADLINE_S"),
    ):
        monkeypatch.setattr(module, name, 0.05)
    client = await api.connect()
    await client.send(sent)
    assert statuses(await client.rest()) == ([408] if sent else [])
    assert pushed(api) == []


async def test_dripping_bytes_win_no_time(api: Fronted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_DEADLINE_S", 0.2)
    client = await api.connect()
    reading = asyncio.create_task(client.rest())
    drops = iter(HEAD * 1_000)
    with suppress(ConnectionError):
        while not reading.done():
            await client.send(bytes([next(drops)]))
            await asyncio.sleep(0.005)
    with suppress(ConnectionError):  # a drop too much may reset it before the answer is read
        assert statuses(await reading) == [408]
    assert not api.front.connections


async def test_an_idle_connection_is_closed_after_its_answers(
    api: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_S", 0.05)
    assert statuses(await api.speak(push("1"))) == [201]


async def test_a_client_that_never_reads_is_cut(
    api: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_S", 0.2)
    client = await api.connect()
    client.writer.transport.pause_reading()
    bad = request(b'{"topic":"%s"}' % (b"x" * 100)) * 100
    with pytest.raises(ConnectionError):
        while True:
            await client.send(bad)
    await wait_until_async(lambda: not api.front.connections)


async def test_a_push_that_waits_is_not_taken_for_idle(
    api: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_S", 0.05)
    api.schedule.gate.clear()
    client = await api.connect()
    await client.send(push("1"))
    await wait_until_async(lambda: api.schedule.waiting)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.reader.read(1)
    api.schedule.gate.set()
    assert statuses(await client.answer()) == [201]


# Who goes


async def test_a_client_that_hangs_up_does_not_stop_its_pushes(
    api: Fronted, caplog: pytest.LogCaptureFixture
) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    batch = request(b'{"jobs":[{"topic":"t","id":"b"}]}', path=b"/v1/jobs/batch")
    await client.send(push("1") + batch + push("half")[:-1])
    await wait_until_async(lambda: api.schedule.waiting == 2)
    client.writer.transport.abort()
    await wait_until_async(lambda: all(one._is_deaf for one in api.front.connections))
    api.schedule.gate.set()
    await wait_until_async(lambda: pushed(api) == ["1", "b"] and not api.front.connections)
    assert caplog.text == ""


async def test_a_client_that_has_said_all_still_hears_the_answers(api: Fronted) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    await client.send(push("1") + push("2") + push("half")[:-1])
    client.writer.write_eof()
    await wait_until_async(lambda: api.schedule.waiting == 2)
    api.schedule.gate.set()
    answer = await client.rest()
    assert ids(answer) == ["1", "2"] and answer.count(CLOSE) == 1


async def stop_while_waiting(api: Fronted, clients: list[Client], count: int) -> list[bytes]:
    """What each client hears when a stop comes while `count` pushes wait."""
    await wait_until_async(lambda: api.schedule.waiting == count)
    stopping = asyncio.create_task(api.stop())
    await wait_until_async(lambda: all(one._is_deaf for one in api.front.connections))
    assert not stopping.done()
    api.schedule.gate.set()
    answers = [await client.rest() for client in clients]
    await stopping
    return answers


async def test_a_stop_answers_what_was_begun_and_says_that_it_closes(api: Fronted) -> None:
    api.schedule.gate.clear()
    clients = [await api.connect() for _ in range(3)]
    await clients[0].send(push("1") + push("2"))
    await clients[1].send(request(b'{"jobs":[{"topic":"t","id":"b"}]}', path=b"/v1/jobs/batch"))
    await clients[2].send(push("half")[:-1])
    answers = await stop_while_waiting(api, clients, 3)
    assert [ids(answer) for answer in answers] == [["1", "2"], ["b"], []]
    assert [answer.count(CLOSE) for answer in answers] == [1, 1, 0]
    assert answers[0].index(CLOSE) > answers[0].index(b'"id":"1"')
    with pytest.raises(ConnectionError):
        await api.connect()


async def test_a_stop_waits_for_a_push_whose_client_is_gone(api: Fronted) -> None:
    api.schedule.gate.clear()
    client = await api.connect()
    await client.send(push("1"))
    await wait_until_async(lambda: api.schedule.waiting)
    client.writer.transport.abort()
    await wait_until_async(lambda: all(one._is_deaf for one in api.front.connections))
    stopping = asyncio.create_task(api.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    api.schedule.gate.set()
    await stopping
    assert pushed(api) == ["1"]


async def test_a_stop_is_not_held_up_by_who_does_not_read(
    api: Fronted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "STOP_WITHIN_S", 0.1)
    client = await api.connect()
    client.writer.transport.pause_reading()
    bad = request(b'{"topic":"%s"}' % (b"x" * 100)) * 100
    sending = asyncio.create_task(client.send(bad * 200))
    await wait_until_async(lambda: any(one._is_congested for one in api.front.connections))
    await api.stop()
    await asyncio.wait([sending])
    assert sending.exception() is None or isinstance(sending.exception(), ConnectionError)


async def test_failures_are_told_to_the_one_they_concern(api: Fronted) -> None:
    api.schedule.failing_ids["bad"] = NodeAway("n1")
    answer = await api.speak(push("1") + push("bad") + push("2", CLOSE))
    assert statuses(answer) == [201, 503, 201] and b"Retry-After: 2" in answer
