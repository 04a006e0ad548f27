"""What aiohttp doesn't tell of its connections, and what callbacks need to know.

A server may close a kept-alive connection at any moment, so a request on a reused one that dies
before the first byte of a reply says nothing about the endpoint: it is sent again, once, on a
fresh connection. And a reply nobody asked for must never become the answer to the next job: a
connection that says anything while it rests is thrown away.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl

from aiohttp import (
    AddrInfoType,
    ClientConnectionError,
    ClientError,
    ClientHandlerType,
    ClientRequest,
    ClientResponse,
    ClientTimeout,
    StreamReader,
    TCPConnector,
    hdrs,
)
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.tracing import Trace

from dq.core.networks import DenyList
from dq.delivery.reasons import BROKE_OFF, NO_REPLY, AddressDenied, explain
from dq.delivery.reply import ENDLESS_INTERIM, MAX_INTERIM, MAX_REPLY
from dq.delivery.sockets import KEPT_IDLE_S, Sockets


class Wire(ResponseHandler):
    """One connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sockets: Sockets) -> None:
        super().__init__(loop)
        self._sockets = sockets
        self._heard = 0
        self._interim = 0
        self._rests = False
        self.requests = 0
        self.has_replied = False

    @property
    def was_stale(self) -> bool:
        """It had served before, and the server left without a word about this request."""
        return self.requests > 1 and not self.has_replied

    def begin(self) -> None:
        """A request is about to be sent. Raises when a stray reply already lies here."""
        self._sockets.resting.pop(self, None)
        self._rests = False
        self._heard = 0
        self._interim = 0
        self.has_replied = False
        self.requests += 1
        if self.should_close:
            raise ClientConnectionError("the connection was used up")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._sockets.count += 1

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._sockets.count -= 1
        self._sockets.resting.pop(self, None)

    def data_received(self, data: bytes) -> None:
        if data:
            if self._rests:
                self.abort()
                return
            self.has_replied = True
            self._heard += len(data)
            if self._heard > MAX_REPLY:
                self.force_close()
        super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """A reply's head has come; an interim one is dropped, too many of them end it all."""
        message, payload = data
        if 100 <= message.code < 200 and message.code != 101:
            self._interim += 1
            if self._interim == MAX_INTERIM:
                self.set_exception(HttpProcessingError(message=ENDLESS_INTERIM))
            return
        super().feed_data(data, size)
        payload.on_eof(self._rest)

    def close(self) -> None:
        """At once: a TLS peer that never says goodbye would hold the socket for half a minute."""
        self._sockets.resting.pop(self, None)
        self.abort()

    def _rest(self) -> None:
        self._rests = True
        self._sockets.resting[self] = None


class Request(ClientRequest):
    """One request; knows its connection while it is being made."""

    DEFAULT_HEADERS = {hdrs.ACCEPT: "*/*", hdrs.ACCEPT_ENCODING: "identity"}  # noqa: RUF012

    wire: Wire | None = None
    is_second_try = False

    @property
    def connection_key(self) -> ConnectionKey:
        """Of a second try: one that no resting connection has."""
        key = super().connection_key
        return key._replace(proxy_headers_hash=id(self)) if self.is_second_try else key

    async def send(self, conn: Connection) -> ClientResponse:
        """Send it on `conn`. Raises ClientError, OSError."""
        wire = conn.protocol
        assert isinstance(wire, Wire)
        self.wire = wire
        wire.begin()
        response = await super().send(conn)
        if self.is_second_try:
            wire.force_close()
        return response


class Connector(TCPConnector):
    """Opens connections and keeps them, none to an address that `deny` denies.

    aiohttp's own limit counts only those in use: with many endpoints the resting ones would
    use up the process's files.
    """

    def __init__(
        self,
        deny: DenyList,
        sockets: Sockets,
        resolver: AbstractResolver,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(
            limit=sockets.limit,
            keepalive_timeout=KEPT_IDLE_S,
            resolver=resolver,
            use_dns_cache=False,
            socket_factory=self._open_socket,
            ssl=True if tls is None else tls,
        )
        self._factory = functools.partial(self._new_wire)
        self._deny = deny
        self._sockets = sockets

    def _new_wire(self) -> ResponseHandler:
        return Wire(self._loop, self._sockets)

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        self._sockets.make_room()
        self._sockets.count += 1  # for the time of connecting; a Wire counts itself
        try:
            return await super()._create_connection(req, traces, timeout)
        finally:
            self._sockets.count -= 1

    def _open_socket(self, addr_info: AddrInfoType) -> socket.socket:
        """Every attempt to connect passes here, IP literals too, with the address it is for."""
        family, kind, protocol, _, address = addr_info
        ip = str(address[0])
        if self._deny.denies(ip):
            raise AddressDenied(ip)
        return socket.socket(family, kind, protocol)


class RequestFailed(ClientError):
    """No reply; the text is the reason in words. aiohttp doesn't repeat after this one."""

    def __init__(self, error: Exception, request: Request) -> None:
        reason = explain(error, request.host)
        if reason == BROKE_OFF and request.wire is not None and not request.wire.has_replied:
            reason = NO_REPLY
        super().__init__(reason)


async def send_safely(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """An aiohttp middleware: the only repeat there is, on a fresh connection.

    Raises RequestFailed in place of the errors after which aiohttp would repeat by itself.
    """
    assert isinstance(request, Request)
    try:
        return await handler(request)
    except (ClientConnectionError, OSError) as error:
        if request.wire is None or not request.wire.was_stale:
            raise RequestFailed(error, request) from error
    request.is_second_try = True
    try:
        return await handler(request)
    except (ClientConnectionError, OSError) as error:
        raise RequestFailed(error, request) from error
