"""One HTTP attempt: a request in, an Answer out, whatever the endpoint does.

Nothing an endpoint does raises, outlives the timeout, takes more memory than a reply's first
64 KiB, or is seen by another topic: no cookies, no redirects, no proxies from the environment,
no decompression. The timeout covers all of it: waiting for a free connection, the name, connecting,
sending and reading.
"""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
from collections.abc import Sequence

import aiohttp
from aiohttp import ClientResponse, ClientTimeout
from aiohttp.abc import AbstractResolver
from yarl import URL

from dq.core import clock
from dq.core.callback import CallbackRequest
from dq.core.networks import DenyList
from dq.core.outcome import Answer, parse_retry_after
from dq.delivery.reasons import explain
from dq.delivery.resolve import Resolver
from dq.delivery.wire import MAX_REPLY, Pool, Request, RequestFailed, send_safely

_log = logging.getLogger(__name__)

_READ_AHEAD = 32 * 1024
_RETRY_AFTER_STATUSES = (429, 503)
_LARGE_BODY = 1024 * 1024
_NO_TIMEOUT = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class _Reply:
    """What has come so far, kept apart so that a timeout doesn't lose it."""

    __slots__ = ("body", "is_cut", "retry_after_s", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.body = b""
        self.is_cut = False
        self.retry_after_s: float | None = None


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
        self._limit = limit
        self._resolver = resolver if resolver is not None else Resolver()
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def call(self, request: CallbackRequest) -> Answer:
        """Make the callback once; never longer than its `timeout_s`, never an exception.

        A request that met a connection just being closed by the server is sent again at once;
        that is no second callback as far as anyone can tell.
        """
        began_ms = clock.mono_ms()
        reply = _Reply()
        error: str | None = None
        try:
            async with asyncio.timeout(request.timeout_s):
                await self._exchange(request, reply)
        except TimeoutError:
            error = f"timed out after {request.timeout_s:g} s"
        except RequestFailed as failure:
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
        if self._session is not None:
            await self._session.close()
            self._session = None
        await self._resolver.close()

    async def _exchange(self, request: CallbackRequest, reply: _Reply) -> None:
        session = self._session or self._open()
        response = await session.request(
            request.method,
            URL(request.url, encoded=True),
            data=_in_pieces(request.body),
            headers=request.headers,
            allow_redirects=False,
        )
        try:
            reply.status = response.status
            if response.status in _RETRY_AFTER_STATUSES:
                asked = response.headers.get("Retry-After", "")
                reply.retry_after_s = parse_retry_after(asked, clock.now_ms())
            await _read(response, reply)
        except BaseException:
            response.close()
            raise
        if reply.is_cut:
            response.close()
        else:
            response.release()

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=Pool(self._deny, self._limit, self._resolver, self._tls),
            request_class=Request,
            middlewares=(send_safely,),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_NO_TIMEOUT,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_READ_AHEAD,
        )
        return self._session


def _in_pieces(body: bytes | None) -> bytes | io.BytesIO | None:
    """A large body as what aiohttp sends piece by piece, so that the loop goes on in between."""
    return body if body is None or len(body) <= _LARGE_BODY else io.BytesIO(body)


async def _read(response: ClientResponse, reply: _Reply) -> None:
    """Read up to one byte more than is kept, to know whether there was more."""
    content = response.content
    chunks: list[bytes] = []
    room = MAX_REPLY + 1
    try:
        while room and not content.at_eof():
            chunk = await content.read(room)
            chunks.append(chunk)
            room -= len(chunk)
    finally:
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        reply.is_cut = len(body) > MAX_REPLY
        reply.body = body[:MAX_REPLY]


def _host(url: str) -> str:
    """For messages; a URL that is none has none."""
    try:
        return URL(url, encoded=True).host or ""
    except ValueError:
        return ""
