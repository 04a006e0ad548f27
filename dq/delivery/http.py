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
from collections.abc import Sequence

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from dq.core import clock
from dq.core.callback import CallbackRequest
from dq.core.networks import DenyList
from dq.core.outcome import Answer
from dq.delivery.client import Client
from dq.delivery.plain import Target, target_of
from dq.delivery.pool import Pool
from dq.delivery.reasons import CallFailed, explain
from dq.delivery.reply import Reply
from dq.delivery.resolve import Resolver
from dq.delivery.sockets import Sockets
from dq.delivery.wire import RequestFailed

_log = logging.getLogger(__name__)


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

    async def call(self, request: CallbackRequest) -> Answer:
        """Make the callback once; never longer than its `timeout_s`, never an exception.

        A request that met a connection just being closed by the server is sent again at once;
        that is no second callback as far as anyone can tell.
        """
        began_ms = clock.mono_ms()
        reply = Reply()
        error: str | None = None
        try:
            await self._enter(request.timeout_s)
            try:
                left_s = request.timeout_s - (clock.mono_ms() - began_ms) / 1000
                await self._exchange(request, reply, left_s)
            finally:
                self._leave()
        except TimeoutError:
            error = f"timed out after {request.timeout_s:g} s"
        except (CallFailed, RequestFailed) as failure:
            error = str(failure)
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            error = explain(failure, _host(request.url))
        except Exception as failure:
            # No peer should be able to get here; if one does, it is its job's failure, not ours.
            _log.exception("a callback to %s failed in an unknown way", _host(request.url))
            error = explain(failure, _host(request.url))
        return Answer(
            status=reply.status,
            body=reply.body,
            cut=reply.is_cut,
            error=error,
            retry_after_s=reply.retry_after_s,
            ms=round(clock.mono_ms() - began_ms),
        )

    async def close(self) -> None:
        """Close every connection; running calls end with an error."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._client is not None:
            await self._client.close()
            self._client = None
        await self._resolver.close()

    async def _exchange(self, request: CallbackRequest, reply: Reply, timeout_s: float) -> None:
        target = self._target_of(request)
        if target is not None:
            if self._pool is None:
                self._pool = Pool(self._deny, self._sockets, self._resolver)
            await self._pool.exchange(request, target, reply, timeout_s)
            return
        if self._client is None:
            self._client = Client(self._deny, self._sockets, self._resolver, self._tls)
        async with asyncio.timeout(timeout_s):
            await self._client.exchange(request, reply)

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
                self._leave()
            raise

    def _leave(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _host(url: str) -> str:
    """For messages; a URL that is none has none."""
    try:
        return URL(url, encoded=True).host or ""
    except ValueError:
        return ""
