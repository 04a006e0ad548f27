"""One HTTP attempt: a request in, an Answer out, whatever the endpoint does.

Nothing an endpoint does raises, outlives the timeout, takes more memory than a reply's first
64 KiB, or is seen by another topic: no cookies, no redirects, no proxies from the environment,
no decompression. The timeout covers all of it: waiting for a free connection, the name, connecting,
sending and reading. Plain http goes through connections of our own (dq/delivery/pool.py), which
cost a quarter of aiohttp's; the rest goes through aiohttp (dq/delivery/client.py).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from dq.core import clock
from dq.core.callback import CallbackRequest
from dq.core.networks import DenyList
from dq.core.outcome import Answer
from dq.delivery.client import Client
from dq.delivery.connection import Connection, Stale
from dq.delivery.plain import Target, request_bytes, target_of
from dq.delivery.pool import Pool
from dq.delivery.reasons import CallFailed, explain
from dq.delivery.reply import Reply
from dq.delivery.resolve import Resolver
from dq.delivery.sockets import Sockets
from dq.delivery.template import PlainRequest
from dq.delivery.turns import Turns
from dq.delivery.wire import RequestFailed

_log = logging.getLogger(__name__)

Told = Callable[[str, Answer], None]
"""Hears how a call ended, with the URL it went to."""


class Caller:
    """Makes callbacks for one process; everything in it belongs to one event loop.

    `deny` holds networks that are never connected to, `limit` is the number of sockets in all,
    `resolver` finds addresses (default: the system's, in threads of its own), `tls` says whom to
    trust (default: the system's authorities). Raises ValueError for a `deny` that is no network.
    """

    def __init__(
        self,
        deny: Sequence[str],
        *,
        limit: int,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._deny = DenyList(deny)
        self._sockets = Sockets(limit)
        self._resolver = resolver if resolver is not None else Resolver()
        self._tls = tls
        self._pool: Pool | None = None
        self._client: Client | None = None
        self._free = limit
        self._queue: deque[asyncio.Future[None]] = deque()
        self._turns = Turns()

    # Two ways to call

    def begin(self, request: CallbackRequest | PlainRequest, told: Told) -> None:
        """Make the callback once; `told` hears of it later, never longer than its timeout later.

        Nearly every callback of a busy endpoint finds a connection at rest, and costs no task.
        """
        if isinstance(request, PlainRequest) and self._free and self._pool is not None:
            connection = self._pool.take(request.target)
            if connection is not None:
                self._free -= 1
                _Call(self, self._pool, request, told).begin(connection)
                return
        self.begin_in_turn(request, self._call_and_tell(request, told, clock.mono_ms()))

    async def call(self, request: CallbackRequest) -> Answer:
        """Make the callback once; never longer than its `timeout_s`, never an exception.

        A request that met a connection just being closed by the server is sent again at once;
        that is no second callback as far as anyone can tell.
        """
        return await self._call(request, clock.mono_ms())

    async def close(self) -> None:
        """Close every connection; running calls end with an error."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._client is not None:
            await self._client.close()
            self._client = None
        await self._resolver.close()

    async def _call(self, request: CallbackRequest | PlainRequest, began_ms: float) -> Answer:
        reply = Reply()
        error: str | None = None
        try:
            await self._enter(request.timeout_s - (clock.mono_ms() - began_ms) / 1000)
            try:
                left_s = request.timeout_s - (clock.mono_ms() - began_ms) / 1000
                await self._exchange(request, reply, left_s)
            finally:
                self.leave()
        except Exception as failure:
            error = _reason(failure, request)
        return _answer(reply, error, began_ms)

    async def _exchange(
        self, request: CallbackRequest | PlainRequest, reply: Reply, timeout_s: float
    ) -> None:
        if isinstance(request, PlainRequest):
            await self._plainly.exchange(request.data, request.target, reply, timeout_s)
        elif (target := self._target_of(request)) is not None:
            data = request_bytes(request, target)
            await self._plainly.exchange(data, target, reply, timeout_s)
        else:
            if self._client is None:
                self._client = Client(self._deny, self._sockets, self._resolver, self._tls)
            async with asyncio.timeout(timeout_s):
                await self._client.exchange(request, reply)

    async def _call_and_tell(
        self, request: CallbackRequest | PlainRequest, told: Told, began_ms: float
    ) -> None:
        told(request.url, await self._call(request, began_ms))

    # What a call without a task needs of it

    def begin_in_turn(
        self, request: CallbackRequest | PlainRequest, work: Coroutine[Any, Any, None]
    ) -> None:
        """Do for `request` what may open a connection."""
        self._turns.enter(request.url.partition("?")[0], work)

    def leave(self) -> None:
        """A call is over: there is room for another."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    @property
    def _plainly(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self._deny, self._sockets, self._resolver)
        return self._pool

    def _target_of(self, request: CallbackRequest) -> Target | None:
        """Where it goes when it goes out plain."""
        return target_of(request)

    # No more calls at a time than there may be sockets

    async def _enter(self, timeout_s: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise


class _Call(Reply):
    """A call on a connection that was at rest. The connection tells it what it would tell a future;
    when the server has just left, the request is sent again, in a task then."""

    __slots__ = ("_began_ms", "_caller", "_deadline_s", "_pool", "_request", "_told")

    def __init__(self, caller: Caller, pool: Pool, request: PlainRequest, told: Told) -> None:
        super().__init__()
        self._caller = caller
        self._pool = pool
        self._request = request
        self._told = told
        self._began_ms = clock.mono_ms()

    def begin(self, connection: Connection) -> None:
        request = self._request
        self._deadline_s = asyncio.get_running_loop().time() + request.timeout_s
        connection.begin(request.data, self, self._deadline_s, self)

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        self._end(None)

    def set_exception(self, failure: Exception) -> None:
        if isinstance(failure, Stale):
            self._caller.begin_in_turn(self._request, self._call_again())
        else:
            self._end(_reason(failure, self._request))

    async def _call_again(self) -> None:
        request, error = self._request, None
        try:
            await self._pool.exchange_freshly(
                request.data, request.target, self, self._deadline_s, is_again=True
            )
        except Exception as failure:
            error = _reason(failure, request)
        self._end(error)

    def _end(self, error: str | None) -> None:
        self._caller.leave()
        self._told(self._request.url, _answer(self, error, self._began_ms))


def _answer(reply: Reply, error: str | None, began_ms: float) -> Answer:
    ms = round(clock.mono_ms() - began_ms)
    return Answer(reply.status, reply.body, reply.is_cut, error, reply.retry_after_s, ms)


def _reason(failure: Exception, request: CallbackRequest | PlainRequest) -> str:
    """Why a call failed, in words."""
    if isinstance(failure, TimeoutError):
        return f"timed out after {request.timeout_s:g} s"
    if isinstance(failure, CallFailed | RequestFailed):
        return str(failure)
    if not isinstance(failure, aiohttp.ClientError | OSError | ValueError):
        # No peer should be able to get here; if one does, it is its job's failure, not ours.
        _log.error(
            "a callback to %s failed in an unknown way", _host(request.url), exc_info=failure
        )
    return explain(failure, _host(request.url))


def _host(url: str) -> str:
    """For messages; a URL that is none has none."""
    try:
        return URL(url, encoded=True).host or ""
    except ValueError:
        return ""
