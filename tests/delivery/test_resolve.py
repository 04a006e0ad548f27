"""Names: what is kept, what is asked again, and who has to wait."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from dq.core.networks import DEFAULT_DENY
from dq.delivery import resolve
from dq.delivery.resolve import THREADS, Resolver
from tests.delivery.conftest import MakeCaller
from tests.delivery.hostile import HostileServer
from tests.delivery.requests import post
from tests.support import wait_until_async

AWAY = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
GONE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class NameServer:
    """Answers lookups from `names`; those in `silent` wait until it closes."""

    def __init__(self) -> None:
        self.names: dict[str, list[str] | OSError] = {}
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self._closes = threading.Event()

    def look_up(self, host: str) -> list[str]:
        self.asked.append(host)
        if host in self.silent:
            self._closes.wait(10)
            raise AWAY
        answer = self.names.get(host, GONE)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def close(self) -> None:
        self._closes.set()


@pytest.fixture
async def names() -> AsyncIterator[NameServer]:
    names = NameServer()
    yield names
    names.close()


async def addresses(resolver: Resolver, host: str) -> list[str]:
    return [found["host"] for found in await resolver.resolve(host, 80)]


def age(resolver: Resolver, host: str, seconds: float) -> None:
    """Make what is known of `host` so much older."""
    known = resolver._known[host]
    known.heard_ms -= seconds * 1000
    known.fresh_until_ms -= seconds * 1000


async def test_the_system_knows_localhost() -> None:
    found = await Resolver().resolve("localhost", 80)
    assert {entry["host"] for entry in found} <= {"127.0.0.1", "::1"}
    assert found[0]["port"] == 80


async def test_many_ask_once_and_the_answer_is_kept(names: NameServer) -> None:
    names.names["a.example"] = ["192.0.2.1", "2001:db8::1"]
    resolver = Resolver(names.look_up)
    for _ in range(2):
        found = await asyncio.gather(*(addresses(resolver, "a.example") for _ in range(50)))
        assert found == [["192.0.2.1", "2001:db8::1"]] * 50
    assert names.asked == ["a.example"]


async def test_a_change_is_noticed(names: NameServer) -> None:
    names.names["a.example"] = ["192.0.2.1"]
    resolver = Resolver(names.look_up)
    await addresses(resolver, "a.example")
    names.names["a.example"] = ["192.0.2.2"]
    age(resolver, "a.example", resolve.FRESH_S + 1)
    assert await addresses(resolver, "a.example") == ["192.0.2.2"]


async def test_a_failure_is_an_answer_for_a_while(names: NameServer) -> None:
    resolver = Resolver(names.look_up)
    for _ in range(3):
        with pytest.raises(socket.gaierror):
            await addresses(resolver, "a.example")
    assert names.asked == ["a.example"]
    names.names["a.example"] = ["192.0.2.1"]
    age(resolver, "a.example", resolve.FAILED_S + 1)
    assert await addresses(resolver, "a.example") == ["192.0.2.1"]


async def test_old_addresses_serve_while_the_name_server_is_away(names: NameServer) -> None:
    names.names["a.example"] = ["192.0.2.1"]
    resolver = Resolver(names.look_up)
    await addresses(resolver, "a.example")
    names.names["a.example"] = AWAY
    age(resolver, "a.example", 600)
    assert await addresses(resolver, "a.example") == ["192.0.2.1"]
    age(resolver, "a.example", resolve.KEPT_S)
    with pytest.raises(socket.gaierror):
        await addresses(resolver, "a.example")


async def test_a_name_that_is_no_more_does_not_serve_on(names: NameServer) -> None:
    names.names["a.example"] = ["192.0.2.1"]
    resolver = Resolver(names.look_up)
    await addresses(resolver, "a.example")
    names.names["a.example"] = GONE
    age(resolver, "a.example", 600)
    with pytest.raises(socket.gaierror):
        await addresses(resolver, "a.example")


async def test_a_known_name_is_not_waited_for_long(names: NameServer) -> None:
    names.names["a.example"] = ["192.0.2.1"]
    resolver = Resolver(names.look_up)
    await addresses(resolver, "a.example")
    names.silent.add("a.example")
    age(resolver, "a.example", 600)
    async with asyncio.timeout(2 * resolve.PATIENCE_S + 0.5):
        assert await addresses(resolver, "a.example") == ["192.0.2.1"]


async def test_silent_names_starve_no_other(make_caller: MakeCaller, names: NameServer) -> None:
    names.silent = {f"silent-{n}.example" for n in range(200)}
    names.names["good.example"] = ["127.0.0.1"]
    caller = make_caller((), limit=500, resolver=Resolver(names.look_up))
    async with HostileServer() as server:
        lost = [
            asyncio.create_task(caller.call(post(f"http://{host}/", 0.4))) for host in names.silent
        ]
        await wait_until_async(lambda: len(names.asked) == 200)
        good = await caller.call(post(server.url("/ok", "good.example"), 0.4))
        assert good.status == 200
        errors = {(await call).error for call in lost}
    assert errors == {"timed out after 0.4 s"}


async def test_threads_are_bounded(names: NameServer) -> None:
    names.silent = {f"silent-{n}.example" for n in range(THREADS + 20)}
    resolver = Resolver(names.look_up)
    waiting = [asyncio.create_task(resolver.resolve(host)) for host in names.silent]
    await wait_until_async(lambda: len(names.asked) == THREADS)
    assert len(names.asked) == THREADS
    names.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, socket.gaierror) for result in results)
    assert len(names.asked) == THREADS + 20


async def test_closing_ends_all_waiting(names: NameServer) -> None:
    names.silent = {"silent.example"}
    resolver = Resolver(names.look_up)
    waiting = asyncio.create_task(resolver.resolve("silent.example"))
    await wait_until_async(lambda: names.asked)
    await resolver.close()
    with pytest.raises(OSError, match="stopped"):
        await waiting


async def test_a_name_that_turns_to_a_denied_address_is_denied(
    make_caller: MakeCaller, names: NameServer
) -> None:
    names.names["a.example"] = ["127.0.0.1"]
    resolver = Resolver(names.look_up)
    caller = make_caller(DEFAULT_DENY, limit=5, resolver=resolver)
    async with HostileServer() as server:
        url = server.url("/closes/1", "a.example")
        assert (await caller.call(post(url))).status == 200
        names.names["a.example"] = ["169.254.169.254"]
        age(resolver, "a.example", 600)
        await wait_until_async(lambda: server.open_connections == 0)
        answer = await caller.call(post(url))
        assert answer.error == "address 169.254.169.254 is denied (DQ_CALLBACK_DENY)"


async def test_of_several_addresses_the_allowed_ones_are_used(
    make_caller: MakeCaller, names: NameServer
) -> None:
    names.names["a.example"] = ["169.254.169.254", "fd00:ec2::254", "127.0.0.1"]
    names.names["b.example"] = ["169.254.169.254", "fd00:ec2::254"]
    caller = make_caller(DEFAULT_DENY, limit=5, resolver=Resolver(names.look_up))
    async with HostileServer() as server:
        assert (await caller.call(post(server.url("/ok", "a.example"), 5))).status == 200
        answer = await caller.call(post(server.url("/ok", "b.example"), 5))
        assert answer.error == "address 169.254.169.254 is denied (DQ_CALLBACK_DENY)"
