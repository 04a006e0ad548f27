"""aiohttp's client, for whatever is more than plain http: TLS, long bodies, odd URLs.

It is told to do as little as it can: no cookies, no redirects, no proxies from the environment, no
decompression. What it doesn't know about connections is in dq/delivery/wire.py.
"""

from __future__ import annotations

import io
import ssl

import aiohttp
from aiohttp import ClientResponse, ClientTimeout
from aiohttp.abc import AbstractResolver
from yarl import URL

from dq.core.callback import CallbackRequest
from dq.core.networks import DenyList
from dq.delivery.reply import MAX_REPLY, Reply
from dq.delivery.sockets import Sockets
from dq.delivery.wire import Connector, Request, send_safely

_READ_AHEAD = 32 * 1024
_LARGE_BODY = 1024 * 1024
_NO_TIMEOUT = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class Client:
    """Belongs to one event loop; `tls` says whom to trust (default: the system's authorities)."""

    def __init__(
        self,
        deny: DenyList,
        sockets: Sockets,
        resolver: AbstractResolver,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._session = aiohttp.ClientSession(
            connector=Connector(deny, sockets, resolver, tls),
            request_class=Request,
            middlewares=(send_safely,),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_NO_TIMEOUT,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_READ_AHEAD,
        )

    async def exchange(self, request: CallbackRequest, reply: Reply) -> None:
        """Send `request`; what comes back goes into `reply`. It is for the caller to end it in
        time. Raises RequestFailed, ClientError, OSError, ValueError."""
        response = await self._session.request(
            request.method,
            URL(request.url, encoded=True),
            data=_in_pieces(request.body),
            headers=request.headers,
            allow_redirects=False,
        )
        try:
            reply.status = response.status
            reply.read_retry_after(response.headers.get("Retry-After", ""))
            await _read(response, reply)
        except BaseException:
            response.close()
            raise
        if reply.is_cut:
            response.close()
        else:
            response.release()

    async def close(self) -> None:
        """Close every connection; running calls end with an error."""
        await self._session.close()


def _in_pieces(body: bytes | None) -> bytes | io.BytesIO | None:
    """A large body as what aiohttp sends piece by piece, so that the loop goes on in between."""
    return body if body is None or len(body) <= _LARGE_BODY else io.BytesIO(body)


async def _read(response: ClientResponse, reply: Reply) -> None:
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
        reply.keep(chunks[0] if len(chunks) == 1 else b"".join(chunks))
