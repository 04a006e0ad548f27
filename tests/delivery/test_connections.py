"""Which connection a request goes out on, and when it may go out twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from dq.core.callback import CallbackRequest
from dq.delivery.http import Caller
from dq.delivery.sockets import KEPT_IDLE_S
from tests.delivery.conftest import MakeCaller
from tests.delivery.hostile import OK_BODY, HostileServer
from tests.delivery.requests import get, post
from tests.support import wait_until_async


async def test_connections_are_kept(caller: Caller, server: HostileServer) -> None:
    for _ in range(5):
        await caller.call(post(server.url("/ok")))
    assert server.connections == 1


@pytest.mark.parametrize("path", ["/stale", "/stale_reset"])
@pytest.mark.parametrize("method", [post, get])
async def test_a_request_lost_on_a_used_connection_goes_out_again(
    caller: Caller, server: HostileServer, method: Callable[[str], CallbackRequest], path: str
) -> None:
    await caller.call(post(server.url("/ok")))
    answer = await caller.call(method(server.url(path)))
    assert (answer.status, answer.body, answer.error) == (200, OK_BODY, None)
    lost, repeated = server.requests[1:]
    assert (lost.connection, repeated.connection) == (0, 1)
    assert lost.body == repeated.body


async def test_a_large_body_goes_out_again_whole(caller: Caller, server: HostileServer) -> None:
    body = os.urandom(3_000_000)
    await caller.call(post(server.url("/ok"), 5, body))
    answer = await caller.call(post(server.url("/stale"), 5, body))
    assert answer.status == 200
    assert server.bodies()[1:] == [body, body]


async def test_the_second_try_uses_a_connection_of_its_own_and_closes_it(
    caller: Caller, server: HostileServer
) -> None:
    slow = [asyncio.create_task(caller.call(post(server.url("/slow/0.1"), 5))) for _ in range(5)]
    await asyncio.gather(*slow)
    assert server.connections == 5
    assert (await caller.call(post(server.url("/stale"), 5))).status == 200
    lost, repeated = server.requests[5:]
    assert lost.connection < repeated.connection == 5
    await wait_until_async(lambda: server.open_connections == 4)


@pytest.mark.parametrize("method", [post, get])
async def test_it_goes_out_twice_at_most(
    caller: Caller, server: HostileServer, method: Callable[[str], CallbackRequest]
) -> None:
    await caller.call(post(server.url("/ok")))
    answer = await caller.call(method(server.url("/no_reply")))
    assert answer.error == "connection closed without a reply"
    assert len(server.requests) == 3


@pytest.mark.parametrize("path", ["/half_head", "/half", "/half_reset"])
async def test_a_reply_that_had_begun_is_not_asked_for_again(
    caller: Caller, server: HostileServer, path: str
) -> None:
    await caller.call(post(server.url("/ok")))
    answer = await caller.call(post(server.url(path)))
    assert answer.error == "reply broke off"
    assert len(server.requests) == 2


async def test_a_timeout_on_a_used_connection_is_not_repeated(
    caller: Caller, server: HostileServer
) -> None:
    await caller.call(post(server.url("/ok")))
    answer = await caller.call(post(server.url("/hang"), 0.2))
    assert answer.error == "timed out after 0.2 s"
    assert len(server.requests) == 2


async def test_a_server_that_went_away_refuses_the_second_try(caller: Caller) -> None:
    async with HostileServer() as server:
        await caller.call(post(server.url("/ok")))
        gone = server.url("/ok")
    assert (await caller.call(post(gone))).error == "connect refused"


async def test_no_call_fails_on_servers_that_close_as_they_like(
    caller: Caller, server: HostileServer
) -> None:
    paths = ["/closes/1", "/closes/3", "/stale", "/stale_reset", "/ok"]

    async def call_many(path: str) -> list[str | None]:
        return [(await caller.call(post(server.url(path), 5))).error for _ in range(40)]

    errors = await asyncio.gather(*(call_many(path) for path in paths))
    assert errors == [[None] * 40] * len(paths)


@pytest.mark.parametrize("path", ["/twice", "/twice_later", "/twice_later/half"])
async def test_a_reply_nobody_asked_for_answers_nobody(
    caller: Caller, server: HostileServer, path: str
) -> None:
    for _ in range(3):
        assert (await caller.call(post(server.url(path)))).body == OK_BODY
        # The stray reply finds the connection at rest, which is then thrown away.
        await wait_until_async(lambda: server.open_connections == 0)
    assert (await caller.call(post(server.url("/ok")))).body == OK_BODY
    assert server.connections == 4


async def test_idle_connections_are_left_before_common_servers_leave(
    caller: Caller, server: HostileServer
) -> None:
    await caller.call(post(server.url("/ok")))
    await wait_until_async(lambda: server.open_connections == 0, 2 * KEPT_IDLE_S + 1)
    await caller.call(post(server.url("/ok")))
    assert server.connections == 2
    assert KEPT_IDLE_S < 2


async def test_the_limit_counts_all_sockets(make_caller: MakeCaller, server: HostileServer) -> None:
    caller = make_caller((), limit=4)
    async with HostileServer() as other:
        for target in (server, other, server, other):
            calls = [caller.call(post(target.url("/slow/0.05"), 5)) for _ in range(10)]
            assert all(answer.status == 200 for answer in await asyncio.gather(*calls))
            await wait_until_async(lambda: server.open_connections + other.open_connections <= 4)


async def test_waiting_for_a_free_connection_counts_as_time(
    make_caller: MakeCaller, server: HostileServer
) -> None:
    caller = make_caller((), limit=1)
    hanging = asyncio.create_task(caller.call(post(server.url("/hang"), 0.5)))
    await wait_until_async(lambda: len(server.requests) == 1)
    assert (await caller.call(post(server.url("/ok"), 0.2))).error == "timed out after 0.2 s"
    assert len(server.requests) == 1
    await hanging
    assert (await caller.call(post(server.url("/ok"), 0.2))).status == 200
