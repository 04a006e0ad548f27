"""What a Caller answers, whatever an endpoint does: each against a real socket."""

from __future__ import annotations

import asyncio
import os

import psutil  # type: ignore[import-untyped]
import pytest

from dq.delivery.http import Caller
from dq.delivery.reply import MAX_REPLY
from tests.delivery.conftest import MakeCaller
from tests.delivery.hostile import OK_BODY, HostileServer, free_port
from tests.delivery.requests import HEADERS, get, post
from tests.support import wait_until_async


async def test_a_good_reply_comes_back_whole(caller: Caller, server: HostileServer) -> None:
    answer = await caller.call(post(server.url("/ok")))
    assert (answer.status, answer.body, answer.error) == (200, OK_BODY, None)
    assert not answer.cut
    assert answer.retry_after_s is None


async def test_a_request_leaves_as_it_was_built(caller: Caller, server: HostileServer) -> None:
    body = bytes(range(256))
    await caller.call(post(server.url("/echo/a%2Fb?q=%7e&q=1+2"), body=body))
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/echo/a%2Fb?q=%7e&q=1+2")
    assert request.body == body
    assert [pair for pair in request.headers if pair in HEADERS] == HEADERS
    assert request.header("Accept-Encoding") == "identity"
    assert request.header("Content-Length") == "256"
    assert request.header("Transfer-Encoding") is None


async def test_a_get_has_no_body(caller: Caller, server: HostileServer) -> None:
    answer = await caller.call(get(server.url("/ok?id=42")))
    assert answer.status == 200
    assert server.requests[0].header("Content-Length") is None


async def test_an_empty_body_is_sent_as_one(caller: Caller, server: HostileServer) -> None:
    await caller.call(post(server.url("/ok"), body=b""))
    assert server.requests[0].header("Content-Length") == "0"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/status/500", 500, b"status 500"),
        ("/status/404", 404, b"status 404"),
        ("/empty", 200, b""),
        ("/no_content", 204, b""),
        ("/chunked", 200, OK_BODY),
        ("/until_close", 200, OK_BODY),
        ("/hints", 200, OK_BODY),
        ("/redirect", 302, b"moved"),
        ("/upgrade", 101, b""),
    ],
)
async def test_whole_replies_of_every_kind(
    caller: Caller, server: HostileServer, path: str, status: int, body: bytes
) -> None:
    for _ in range(3):
        answer = await caller.call(post(server.url(path)))
        assert (answer.status, answer.body, answer.error) == (status, body, None)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/half", "reply broke off"),
        ("/half_head", "reply broke off"),
        ("/half_chunks", "reply broke off"),
        ("/half_reset", "reply broke off"),
        ("/no_reply", "connection closed without a reply"),
        ("/reset", "connection reset"),
        ("/garbage", "broken reply: Bad status line"),
        ("/bad_chunks", "broken reply: Invalid character in chunk size"),
        ("/two_lengths", "broken reply: Duplicate Content-Length"),
        ("/endless_headers", "broken reply: headers too long"),
        ("/endless_line", "broken reply: headers too long"),
        ("/continues", "broken reply: endless interim replies"),
    ],
)
async def test_broken_replies_end_at_once_with_their_reason(
    caller: Caller, server: HostileServer, path: str, error: str
) -> None:
    for method in (post, get):
        answer = await caller.call(method(server.url(path), 5))
        assert answer.error == error
        assert answer.ms < 2000
    assert len(server.requests) == 2  # nothing is repeated behind the queue's back
    assert (await caller.call(post(server.url("/ok"), 5))).body == OK_BODY


@pytest.mark.parametrize("path", ["/hang", "/drip", "/drip_headers", "/drip_body", "/unread"])
async def test_the_timeout_is_of_the_whole_callback(
    caller: Caller, server: HostileServer, path: str
) -> None:
    answer = await caller.call(post(server.url(path), 0.3))
    assert answer.error == "timed out after 0.3 s"
    assert 290 <= answer.ms < 800
    if path != "/unread":
        await wait_until_async(lambda: server.open_connections == 0)


async def test_a_timeout_keeps_what_had_come(caller: Caller, server: HostileServer) -> None:
    answer = await caller.call(post(server.url("/drip_body"), 0.3))
    assert answer.status == 200
    assert answer.body.startswith(b"xx")


async def test_a_request_nobody_reads_ends_too(caller: Caller, server: HostileServer) -> None:
    answer = await caller.call(post(server.url("/unread"), 0.3, b"x" * 10_000_000))
    assert answer.error == "timed out after 0.3 s"


async def test_an_early_answer_ends_the_upload(caller: Caller, server: HostileServer) -> None:
    answer = await caller.call(post(server.url("/unread_early"), 2, b"x" * 10_000_000))
    assert (answer.status, answer.body, answer.error) == (413, b"too much", None)
    assert (await caller.call(post(server.url("/ok"), 2))).status == 200
    assert server.connections == 2


@pytest.mark.parametrize("path", ["/endless", "/endless_chunks", "/gzip_bomb", "/big/65537"])
async def test_a_long_reply_is_cut_and_its_connection_closed(
    caller: Caller, server: HostileServer, path: str
) -> None:
    before = psutil.Process(os.getpid()).memory_info().rss
    for _ in range(10):
        answer = await caller.call(post(server.url(path), 5))
        assert (answer.status, answer.error, answer.cut) == (200, None, True)
        assert len(answer.body) == MAX_REPLY
    await wait_until_async(lambda: server.open_connections == 0)
    assert server.connections == 10
    assert server.sent_bytes < 10 * 8_000_000  # what the kernel's buffers hold, not 10 GB
    grown = psutil.Process(os.getpid()).memory_info().rss - before
    assert grown < 64_000_000


async def test_a_reply_of_just_the_limit_is_whole(caller: Caller, server: HostileServer) -> None:
    answer = await caller.call(post(server.url(f"/big/{MAX_REPLY}"), 5))
    assert len(answer.body) == MAX_REPLY
    assert not answer.cut


@pytest.mark.parametrize(
    ("path", "wait_s"),
    [
        ("/retry_after/503/120", 120.0),
        ("/retry_after/429/3", 3.0),
        ("/retry_after/503/99999999999", 86400.0),
        ("/retry_after/503/-5", None),
        ("/retry_after/503/soon", None),
        ("/retry_after/503/Fri,_31_Dec_1999_23:59:59_GMT", None),
        ("/retry_after/500/120", None),
        ("/retry_after/200/120", None),
    ],
)
async def test_retry_after_is_read_where_it_means_something(
    caller: Caller, server: HostileServer, path: str, wait_s: float | None
) -> None:
    assert (await caller.call(post(server.url(path)))).retry_after_s == wait_s


async def test_cookies_are_forgotten(caller: Caller, server: HostileServer) -> None:
    await caller.call(post(server.url("/cookie")))
    await caller.call(post(server.url("/ok")))
    assert server.requests[1].header("Cookie") is None


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:{port}/", "connect refused"),
        ("http://localhost:{port}/", "connect refused"),
        ("http://nobody.invalid/", "DNS: no such host nobody.invalid"),
        ("http://169.254.169.254/", "address 169.254.169.254 is denied (DQ_CALLBACK_DENY)"),
        ("http://[::ffff:a9fe:a9fe]/", "address ::ffff:a9fe:a9fe is denied (DQ_CALLBACK_DENY)"),
        ("http://[64:ff9b::a9fe:a9fe]/", "address 64:ff9b::a9fe:a9fe is denied (DQ_CALLBACK_DENY)"),
        ("http://[fe80::1]/", "address fe80::1 is denied (DQ_CALLBACK_DENY)"),
        ("http://0.0.0.0:{port}/", "address 0.0.0.0 is denied (DQ_CALLBACK_DENY)"),
        ("http://0xa9fea9fe/", "address 169.254.169.254 is denied (DQ_CALLBACK_DENY)"),
        ("http://2852039166/", "bad URL: is not a canonical IPv4 address"),
        ("http://127.1/", "bad URL: is not a canonical IPv4 address"),
        ("http://host:99999/", "bad request: Port out of range 0-65535"),
        ("ftp://host/", "bad URL: neither http nor https"),
        ("host", "bad URL: it names no host"),
    ],
)
async def test_where_no_connection_is_made(caller: Caller, url: str, error: str) -> None:
    answer = await caller.call(post(url.format(port=free_port()), 5))
    assert (answer.status, answer.error) == (None, error)


async def test_a_header_that_would_break_the_request_is_not_sent(
    caller: Caller, server: HostileServer
) -> None:
    request = post(server.url("/ok"))
    request.headers.append(("X-Note", "a\r\nX-More: b"))
    try:
        answer = await caller.call(request)
    finally:
        request.headers.pop()
    assert answer.error is not None
    assert answer.error.startswith("bad request: ")
    assert server.requests == []


async def test_a_cancelled_call_is_cancelled(caller: Caller, server: HostileServer) -> None:
    call = asyncio.create_task(caller.call(post(server.url("/hang"), 10)))
    await wait_until_async(lambda: len(server.requests) == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await wait_until_async(lambda: server.open_connections == 0)


async def test_closing_ends_running_calls(make_caller: MakeCaller, server: HostileServer) -> None:
    caller = make_caller((), limit=5)
    call = asyncio.create_task(caller.call(post(server.url("/hang"), 10)))
    await wait_until_async(lambda: len(server.requests) == 1)
    await caller.close()
    assert (await call).error is not None
