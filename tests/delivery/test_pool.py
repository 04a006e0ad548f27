"""Plain connections of our own: every framing in pieces of every size, and peers that cheat."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dq.core.networks import DEFAULT_DENY
from dq.delivery.connection import MAX_FRAMING, MAX_HEAD, Connection, Stale
from dq.delivery.http import Caller
from dq.delivery.reasons import BROKE_OFF, LONG_HEAD, NO_REPLY, CallFailed
from dq.delivery.reply import MAX_REPLY, Reply
from dq.delivery.resolve import Resolver
from tests.delivery.certificates import make_certificate
from tests.delivery.hostile import OK_BODY, HostileServer
from tests.delivery.requests import post
from tests.support import wait_until_async

KEPT, CLOSED = True, False
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
REPLIES = {
    "a length": (SIZED, 200, b"hello", KEPT),
    "no body": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", KEPT),
    "chunks": (CHUNKED + b"3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n", 200, b"hello", KEPT),
    "until close": (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello", 200, b"hello", CLOSED),
    "gzip until close": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", 200, b"x", CLOSED),
    "asked to close": (
        SIZED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        200,
        b"hello",
        CLOSED,
    ),
    "HTTP/1.0": (SIZED.replace(b"1.1", b"1.0"), 200, b"hello", CLOSED),
    "HTTP/1.0, kept": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        KEPT,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", KEPT),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b"", KEPT),
    "interim first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nContent-Length: 9\r\n\r\n" + SIZED,
        200,
        b"hello",
        KEPT,
    ),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        101,
        b"",
        CLOSED,
    ),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok", KEPT),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", KEPT),
}
ENDS_WITH_CONNECTION = ("until close", "gzip until close")


class Home:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.resting: set[Connection] = set()
        self.lost: list[Connection] = []

    def rest(self, connection: Connection) -> None:
        self.resting.add(connection)

    def wake(self, connection: Connection) -> None:
        self.resting.discard(connection)

    def lose(self, connection: Connection) -> None:
        self.lost.append(connection)


class Peer:
    """The other end of one connection, which says what a test tells it to."""

    def __init__(self) -> None:
        self.home = Home()
        self.reply = Reply()

    async def connect(self) -> Peer:
        ours, self.socket = socket.socketpair()
        for end in (ours, self.socket):
            end.setblocking(False)
        loop = asyncio.get_running_loop()
        self.connection = Connection(self.home, ("peer", 80))
        await loop.create_connection(lambda: self.connection, sock=ours)
        return self

    def ask(self, timeout_s: float = 5) -> asyncio.Future[None]:
        self.reply = Reply()
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        return self.connection.send(b"POST / HTTP/1.1\r\n\r\n", self.reply, deadline_s)

    async def say(self, *pieces: bytes) -> None:
        """Each piece is seen before the next is sent."""
        loop = asyncio.get_running_loop()
        for piece in pieces:
            goal = self.connection._heard + len(piece)
            await loop.sock_sendall(self.socket, piece)
            while self.connection._heard < goal and not self.home.lost:
                await asyncio.sleep(0)

    async def leave(self) -> None:
        """Without having left anything unread, which would be a reset."""
        await asyncio.get_running_loop().sock_recv(self.socket, 65536)
        self.socket.close()

    @property
    def is_kept(self) -> bool:
        return self.connection in self.home.resting


async def answered(peer: Peer, *pieces: bytes, ends: bool = False) -> None:
    """Have a request answered by these pieces; `ends`: and the connection closed."""
    answer = peer.ask()
    await peer.say(*pieces)
    if ends:
        await peer.leave()
    await answer


MakePeer = Callable[[], Awaitable[Peer]]


@pytest.fixture
async def make_peer() -> AsyncIterator[MakePeer]:
    made: list[Peer] = []

    async def make() -> Peer:
        made.append(Peer())
        return await made[-1].connect()

    yield make
    for peer in made:
        peer.connection.close()
        peer.socket.close()
    await wait_until_async(lambda: all(peer.home.lost for peer in made))


@pytest.mark.parametrize("kind", REPLIES)
async def test_a_reply_may_come_in_any_pieces(make_peer: MakePeer, kind: str) -> None:
    data, status, body, is_kept = REPLIES[kind]
    splits = [(data[:n], data[n:]) for n in range(1, len(data))]
    for pieces in [(data,), *splits, tuple(data[n : n + 1] for n in range(len(data)))]:
        peer = await make_peer()
        await answered(peer, *pieces, ends=kind in ENDS_WITH_CONNECTION)
        assert (peer.reply.status, peer.reply.body, peer.reply.is_cut) == (status, body, False)
        assert peer.is_kept is is_kept


async def test_a_kept_connection_serves_again_and_again(make_peer: MakePeer) -> None:
    peer = await make_peer()
    for kind in [kind for kind, reply in REPLIES.items() if reply[3] is KEPT] * 3:
        data, status, body, _ = REPLIES[kind]
        await answered(peer, data)
        assert (peer.reply.status, peer.reply.body) == (status, body)
        assert peer.is_kept


@pytest.mark.parametrize("kind", ["a length", "chunks", "interim first", "204"])
async def test_a_reply_that_ends_early_is_none(make_peer: MakePeer, kind: str) -> None:
    data = REPLIES[kind][0]
    for length in range(len(data)):
        peer = await make_peer()
        with pytest.raises(CallFailed) as failure:
            await answered(peer, data[:length], ends=True)
        assert str(failure.value) == (BROKE_OFF if length else NO_REPLY)
        assert not peer.is_kept


@pytest.mark.parametrize("stray", [b"x", b"\0", SIZED, SIZED[:9], b"\r\nHTTP", b"0\r\n\r\n"])
@pytest.mark.parametrize("kind", ["a length", "chunks", "204", "asked to close"])
async def test_what_follows_a_reply_ends_its_connection(
    make_peer: MakePeer, kind: str, stray: bytes
) -> None:
    data, status, body, _ = REPLIES[kind]
    peer = await make_peer()
    await answered(peer, data + stray)
    assert (peer.reply.status, peer.reply.body) == (status, body)
    assert not peer.is_kept
    await wait_until_async(lambda: peer.home.lost)


@pytest.mark.parametrize("stray", [b"\r\n", b"x", SIZED, b""])
async def test_a_resting_connection_that_says_anything_is_dropped(
    make_peer: MakePeer, stray: bytes
) -> None:
    peer = await make_peer()
    await answered(peer, SIZED)
    assert peer.is_kept
    if stray:
        peer.socket.send(stray)
    else:
        peer.socket.close()
    await wait_until_async(lambda: not peer.is_kept and peer.home.lost)


@pytest.mark.parametrize(
    ("begin", "more", "reason"),
    [
        (CHUNKED + b"1;a=", b"b" * 1000, "broken reply: endless framing"),
        (CHUNKED + b"0\r\n", b"X: " + b"b" * 1000 + b"\r\n", "broken reply: endless framing"),
        (CHUNKED + b"0\r\nX: ", b"b" * 1000, "broken reply: endless framing"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 200, LONG_HEAD),
        (b"HTTP/1.1 200 ", b"OK" * 500, LONG_HEAD),
        (b"", b"\r\n" * 500, LONG_HEAD),
    ],
)
async def test_what_never_becomes_a_reply_is_left(
    make_peer: MakePeer, begin: bytes, more: bytes, reason: str
) -> None:
    peer = await make_peer()
    answer = peer.ask(30)
    await peer.say(begin)
    while not answer.done():
        await peer.say(more)
    assert str(answer.exception()) == reason
    assert peer.connection._heard < max(MAX_HEAD, MAX_FRAMING) + 10_000


async def test_one_byte_chunks_up_to_the_limit_are_a_reply(make_peer: MakePeer) -> None:
    peer = await make_peer()
    await answered(peer, CHUNKED + b"1\r\nx\r\n" * MAX_REPLY + b"0\r\n\r\n")
    assert (peer.reply.body, peer.reply.is_cut) == (b"x" * MAX_REPLY, False)


async def test_nothing_that_a_peer_says_breaks_anything_but_its_own_reply(
    make_peer: MakePeer,
) -> None:
    rng = random.Random(7)
    kinds = [reply[0] for reply in REPLIES.values()]
    for _ in range(400):
        data = bytearray(rng.choice(kinds) + rng.choice(kinds))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        peer = await make_peer()
        answer = peer.ask()
        await asyncio.get_running_loop().sock_sendall(peer.socket, bytes(data))
        peer.socket.close()
        try:
            await answer
        except CallFailed as failure:
            assert str(failure).isprintable()
        await wait_until_async(lambda peer=peer: len(peer.home.lost) == 1)
        assert not peer.home.resting


async def test_only_a_used_connection_can_be_stale(make_peer: MakePeer) -> None:
    peer = await make_peer()
    await answered(peer, SIZED)
    answer = peer.ask()
    peer.socket.close()
    with pytest.raises(Stale):
        await answer


# Through the Caller


async def test_ipv6_and_names_with_several_addresses() -> None:
    addresses = {"six.example": ["::1"], "both.example": ["::1", "127.0.0.1"]}
    caller = Caller(DEFAULT_DENY, limit=5, resolver=Resolver(addresses.__getitem__))
    async with HostileServer(host="::1") as six, HostileServer() as four:
        for url in (six.url("/ok", "[::1]"), six.url("/ok", "six.example")):
            assert (await caller.call(post(url, 5))).body == OK_BODY
        assert six.requests[0].header("Host") == f"[::1]:{six.port}"
        assert (await caller.call(post(four.url("/ok", "both.example"), 5))).body == OK_BODY
        assert caller._client is None  # all of it went plain
    await caller.close()


async def test_both_ways_together_keep_to_the_limit() -> None:
    certificate = make_certificate()
    caller = Caller((), limit=3, tls=certificate.for_client())
    async with HostileServer(certificate.for_server()) as safe, HostileServer() as plain:
        for server in (plain, safe, plain, safe):
            calls = [caller.call(post(server.url("/slow/0.02"), 10)) for _ in range(6)]
            assert {one.status for one in await asyncio.gather(*calls)} == {200}
            await wait_until_async(lambda: safe.open_connections + plain.open_connections <= 3)
            assert caller._sockets.count <= 3
        await caller.close()
        await wait_until_async(lambda: caller._sockets.count == 0)
    assert caller._free == 3


async def test_calls_that_are_cancelled_leave_nothing_behind(server: HostileServer) -> None:
    resolver = Resolver(lambda host: ["127.0.0.1"])
    caller = Caller((), limit=2, resolver=resolver)
    urls = [server.url("/hang"), server.url("/hang", "a.example"), server.url("/ok")]
    calls = [asyncio.create_task(caller.call(post(url, 30))) for url in urls]
    await wait_until_async(lambda: len(server.requests) == 2)
    for call in reversed(calls):
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert all(call.cancelled() for call in calls)
    await wait_until_async(lambda: server.open_connections == 0)
    assert (caller._sockets.count, caller._free) == (0, 2)
    assert (await caller.call(post(server.url("/ok"), 5))).status == 200
    await caller.close()


async def test_a_closed_caller_sends_nothing_again(server: HostileServer) -> None:
    caller = Caller((), limit=2)
    await caller.call(post(server.url("/ok"), 5))
    call = asyncio.create_task(caller.call(post(server.url("/hang"), 30)))
    await wait_until_async(lambda: len(server.requests) == 2)
    await caller.close()
    assert (await call).error == "the call was ended"
    assert len(server.requests) == 2


async def test_a_slow_endpoint_holds_up_no_other(server: HostileServer) -> None:
    caller = Caller((), limit=20)
    slow = [asyncio.create_task(caller.call(post(server.url("/hang"), 30))) for _ in range(15)]
    await wait_until_async(lambda: len(server.requests) == 15)
    quick = await asyncio.gather(*(caller.call(post(server.url("/ok"), 5)) for _ in range(100)))
    assert {answer.status for answer in quick} == {200}
    assert server.connections <= 20
    await caller.close()
    await asyncio.gather(*slow)
