"""Calls that cost no task end as the others do: in time, once, and with a reason."""

from __future__ import annotations

import asyncio

from dq.core.outcome import Answer
from dq.core.topic import Topic
from dq.delivery.http import Caller
from dq.delivery.template import PlainRequest, make_template
from tests.delivery.hostile import OK_BODY, HostileServer
from tests.delivery.test_template import NOW_MS, make_job


def plain(url: str, timeout_s: float = 5.0) -> PlainRequest:
    template = make_template(Topic(topic="t", callback=url))
    assert template is not None
    request = template.fill(make_job(), timeout_s, NOW_MS)
    assert request is not None
    return request


async def begun(caller: Caller, request: PlainRequest) -> Answer:
    told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    caller.begin(request, lambda url, answer: told.set_result(answer))
    assert not told.done()
    return await told


async def test_a_call_on_a_kept_connection_costs_no_task(server: HostileServer) -> None:
    caller = Caller((), limit=2)
    request = plain(server.url("/ok"))
    await begun(caller, request)
    await asyncio.sleep(0)
    tasks = asyncio.all_tasks()
    told = asyncio.get_running_loop().create_future()
    caller.begin(request, lambda url, answer: told.set_result(answer))
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= tasks
    await told
    await caller.close()


async def test_one_connection_serves_one_after_the_other(server: HostileServer) -> None:
    caller = Caller((), limit=2)
    await begun(caller, plain(server.url("/ok")))
    for _ in range(5):
        answer = await begun(caller, plain(server.url("/ok")))
        assert (answer.status, answer.body, answer.error) == (200, OK_BODY, None)
    assert server.connections == 1
    await caller.close()


async def test_a_timeout_on_a_kept_connection_is_its_own(server: HostileServer) -> None:
    caller = Caller((), limit=2)
    assert (await begun(caller, plain(server.url("/ok"), 30))).status == 200
    answer = await begun(caller, plain(server.url("/hang"), 0.05))
    assert (answer.status, answer.error) == (None, "timed out after 0.05 s")
    assert answer.ms >= 49
    assert caller._free == 2
    await caller.close()


async def test_a_longer_timeout_after_a_short_one_counts(server: HostileServer) -> None:
    caller = Caller((), limit=2)
    assert (await begun(caller, plain(server.url("/ok"), 0.3))).status == 200
    assert (await begun(caller, plain(server.url("/slow/0.6"), 30))).status == 200
    assert server.connections == 1
    await caller.close()


async def test_a_server_that_has_left_is_asked_again_once(server: HostileServer) -> None:
    caller = Caller((), limit=2)
    assert (await begun(caller, plain(server.url("/ok")))).status == 200
    answer = await begun(caller, plain(server.url("/no_reply")))
    assert answer.status is None
    assert answer.error
    assert server.connections == 2
    assert caller._free == 2
    await caller.close()


async def test_more_than_the_limit_wait_for_their_turn(server: HostileServer) -> None:
    caller = Caller((), limit=3)
    requests = [plain(server.url("/slow/0.02")) for _ in range(10)]
    answers = await asyncio.gather(*(begun(caller, request) for request in requests))
    assert {answer.status for answer in answers} == {200}
    assert server.connections <= 3
    await caller.close()


async def test_calls_under_way_end_with_the_caller(server: HostileServer) -> None:
    caller = Caller((), limit=3)
    assert (await begun(caller, plain(server.url("/ok")))).status == 200
    waiting = asyncio.create_task(begun(caller, plain(server.url("/hang"), 30)))
    await asyncio.sleep(0)
    await caller.close()
    assert (await waiting).error == "the call was ended"
