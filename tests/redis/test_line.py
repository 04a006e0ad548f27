"""The connection for scripts: each call gets its own answer, whatever becomes of the connection."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError, ReadOnlyError, RedisError, ResponseError

from dq.queue import line as line_module
from dq.queue.line import Line, pack
from dq.queue.nodes import make_client
from tests.delivery.certificates import make_certificate
from tests.valkey import Valkey


@pytest.fixture
def server() -> Iterator[Valkey]:
    """One that a test may stop and kill."""
    one = Valkey().start()
    yield one
    one.stop()


@asynccontextmanager
async def line_to(url: str) -> AsyncIterator[Line]:
    client = make_client(url)
    line = Line(client)
    yield line
    await line.close()
    await client.aclose()


async def clients_of(line: Line) -> int:
    told: bytes = await line.call(pack("CLIENT", "LIST", "TYPE", "normal"))
    return len(told.splitlines())


async def test_calls_that_are_on_their_way_together_get_their_own_answers(server: Valkey) -> None:
    async with line_to(server.url) as line:
        calls = [line.call(pack("ECHO", f"é{number}")) for number in range(500)]
        answers = await asyncio.gather(*calls)
        assert answers == [f"é{number}".encode() for number in range(500)]
        assert await clients_of(line) == 1, "one connection for all"


async def test_bytes_and_numbers_arrive_as_they_are(server: Valkey) -> None:
    odd = bytes(range(256)) * 300
    async with line_to(server.url) as line:
        answer = await line.call(pack("EVAL", "return {ARGV[1], #ARGV, nil}", 0, odd, -5))
    assert answer == [odd, 2]


async def test_an_error_is_for_the_one_who_asked(server: Valkey) -> None:
    async with line_to(server.url) as line:
        before, wrong, after = await asyncio.gather(
            line.call(pack("ECHO", "1")),
            line.call(pack("HGET", "too few")),
            line.call(pack("ECHO", "2")),
            return_exceptions=True,
        )
        assert (before, after) == (b"1", b"2")
        assert isinstance(wrong, ResponseError)
        assert await clients_of(line) == 1


async def test_of_calls_sent_together_the_first_error_is_told(server: Valkey) -> None:
    async with line_to(server.url) as line:
        assert await line.call_all([pack("ECHO", "1"), pack("ECHO", "2")]) == [b"1", b"2"]
        with pytest.raises(ResponseError, match="wrong number"):
            await line.call_all([pack("ECHO", "1"), pack("HGET", "few"), pack("NONSENSE")])
        assert await line.call(pack("ECHO", "3")) == b"3"


async def test_who_gives_up_leaves_the_others_their_answers(server: Valkey) -> None:
    async with line_to(server.url) as line:
        await line.call(pack("PING"))
        server.signal(signal.SIGSTOP)
        calls = [asyncio.create_task(line.call(pack("ECHO", str(n)))) for n in range(5)]
        await asyncio.sleep(0)
        calls[2].cancel()
        await asyncio.wait({calls[2]})
        server.signal(signal.SIGCONT)
        kept = await asyncio.gather(*(call for call in calls if call is not calls[2]))
        assert kept == [b"0", b"1", b"3", b"4"]
        assert await line.call(pack("ECHO", "later")) == b"later"


async def test_a_cut_connection_fails_all_and_the_next_call_opens_another(server: Valkey) -> None:
    async with line_to(server.url) as line:
        calls = [line.call(pack("EVAL", "while true do end", 0)) for _ in range(3)]
        waiting = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.05)
        server.kill()
        assert all(isinstance(one, (RedisError, OSError)) for one in await waiting)
        with pytest.raises((RedisError, OSError)):
            await line.call(pack("PING"))
        server.start()
        assert await clients_of(line) == 1


async def test_who_calls_just_as_it_is_cut_is_told_or_answered(server: Valkey) -> None:
    """The server is back before anyone here has noticed that it was gone."""
    async with line_to(server.url) as line:
        answered = [0] * 20

        async def call_on(number: int) -> None:
            while True:
                try:
                    await line.call(pack("PING"))
                    answered[number] += 1
                except (RedisError, OSError):
                    await asyncio.sleep(0)

        calling = [asyncio.create_task(call_on(number)) for number in range(20)]
        for _ in range(10):
            await asyncio.sleep(0.01)
            server.kill()
            server.start()
            before = list(answered)
            async with asyncio.timeout(2):
                while any(now == then for now, then in zip(answered, before, strict=True)):
                    await asyncio.sleep(0.01)
        for task in calling:
            task.cancel()
        await asyncio.wait(calling)


async def test_a_connection_that_is_silent_too_long_is_given_up(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "SILENT_S", 0.0)
    async with line_to(server.url) as line:
        first = await line.call(pack("CLIENT", "ID"))
        server.signal(signal.SIGSTOP)
        call, other = (asyncio.create_task(line.call(pack("PING"))) for _ in range(2))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(ConnectionError, match="given up"):
            await other
        server.signal(signal.SIGCONT)
        assert await line.call(pack("CLIENT", "ID")) > first


async def test_a_master_that_became_a_replica_is_looked_for_anew(server: Valkey) -> None:
    async with line_to(server.url) as line:
        first = await line.call(pack("CLIENT", "ID"))
        await line.call(pack("REPLICAOF", "127.0.0.1", "1"))
        with pytest.raises(ReadOnlyError):
            await line.call(pack("SET", "a", "b"))
        assert await line.call(pack("CLIENT", "ID")) > first


@pytest.mark.parametrize(
    "reply", [b"-LOADING the dataset", b"-NOAUTH who are you", b"-READONLY a replica"]
)
async def test_a_node_that_serves_nobody_now_is_an_error_for_all_who_wait(reply: bytes) -> None:
    async with peer(lambda: reply + b"\r\n") as url, line_to(url) as line:
        calls = [line.call(pack("PING")) for _ in range(3)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, RedisError) for error in errors)


async def test_calls_go_through_tls() -> None:
    tls = make_certificate().for_server()
    async with peer(lambda: b"+PONG\r\n", tls) as url, line_to(url) as line:
        assert await line.call(pack("PING")) == b"PONG"


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n+OK\r\n", b"$5\r\nab", b"\x00\xff\r\n", b""],
    ids=["http", "two answers", "cut", "binary", "nothing"],
)
async def test_a_peer_that_is_no_redis_costs_an_error_and_no_more(reply: bytes) -> None:
    async with peer(lambda: reply) as url, line_to(url) as line:
        for _ in range(3):
            try:
                assert await line.call(pack("PING")) in (b"OK", b"PONG")
            except (RedisError, OSError):
                continue


@asynccontextmanager
async def peer(
    answer: Callable[[], bytes], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Says OK to whatever opens a connection, then once `answer()`, then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if b"PING" in data:
                writer.write(answer())
                break
            writer.write(b"+OK\r\n" * data.count(b"*"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    if tls is None:
        yield f"redis://127.0.0.1:{port}?protocol=2"
    else:
        yield f"rediss://127.0.0.1:{port}?protocol=2&ssl_cert_reqs=none"
    server.close()
