"""Kept connections to endpoints that speak plain http: what most callbacks go out on.

A request takes a connection that rests, the one used last, or opens its own; nobody waits for a
connection here, as dq/delivery/http.py lets no more calls in than there may be sockets. A request
that was lost with a connection that the server had just left is sent again, once, on a fresh one.
Every address is checked against the deny list as its socket is made.
"""

from __future__ import annotations

import asyncio
import socket

from aiohappyeyeballs import AddrInfoType, start_connection
from aiohttp.abc import AbstractResolver

from dq.core.networks import DenyList
from dq.delivery.connection import Connection, Stale
from dq.delivery.plain import Target
from dq.delivery.reasons import NO_REPLY, AddressDenied, CallFailed, clean, explain_dns, explain_os
from dq.delivery.reply import Reply
from dq.delivery.sockets import KEPT_IDLE_S, Sockets

NEXT_ADDRESS_S = 0.25
"""How long one address of several is tried alone."""
SWEEP_S = 0.2


class Pool:
    """Belongs to one event loop; `resolver` is closed by whoever made it."""

    def __init__(self, deny: DenyList, sockets: Sockets, resolver: AbstractResolver) -> None:
        self._deny = deny
        self._sockets = sockets
        self._resolver = resolver
        self._loop = asyncio.get_running_loop()
        self._resting: dict[tuple[str, int], dict[Connection, None]] = {}
        self._open: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def exchange(self, data: bytes, target: Target, reply: Reply, timeout_s: float) -> None:
        """Send the request `data`; what comes back goes into `reply`. Raises TimeoutError, and
        CallFailed with the reason."""
        deadline_s = self._loop.time() + timeout_s
        connection = self.take(target)
        if connection is not None:
            try:
                await _answer(connection, data, reply, deadline_s)
                return
            except Stale:
                pass
        await self.exchange_freshly(data, target, reply, deadline_s, connection is not None)

    async def exchange_freshly(
        self, data: bytes, target: Target, reply: Reply, deadline_s: float, is_again: bool
    ) -> None:
        """The same, on a connection of its own. `is_again`: it was lost with one before, and there
        is no third try."""
        if is_again and self._is_closed:
            raise CallFailed(NO_REPLY)
        fresh = await self._open_by(deadline_s, target)
        await _answer(fresh, data, reply, deadline_s, is_last=is_again)

    def take(self, target: Target) -> Connection | None:
        """One that rests: for whoever sends something on it at once."""
        while resting := self._resting.get((target.host, target.port)):
            connection = next(reversed(resting))
            self.wake(connection)
            if not connection.is_closing:
                return connection
        return None

    def close(self) -> None:
        """Close every connection; running calls end with an error."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._open):
            connection.close()

    # Who rests

    def rest(self, connection: Connection) -> None:
        """It may serve somebody else."""
        connection.rests_since_s = self._loop.time()
        self._sockets.resting[connection] = None
        resting = self._resting.get(connection.key)
        if resting is None:
            resting = self._resting[connection.key] = {}
        resting[connection] = None
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def wake(self, connection: Connection) -> None:
        """It no longer rests."""
        resting = self._resting.get(connection.key)
        if resting is None or connection not in resting:
            return
        del resting[connection], self._sockets.resting[connection]
        if not resting:
            del self._resting[connection.key]

    def lose(self, connection: Connection) -> None:
        """Its socket is closed."""
        self._sockets.count -= 1
        self._open.discard(connection)

    def _sweep(self) -> None:
        """Close what has rested for too long; go on while anything rests."""
        self._sweeper = None
        before_s = self._loop.time() - KEPT_IDLE_S
        for connection in self._rested_since(before_s):
            connection.close()
        if self._resting:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _rested_since(self, before_s: float) -> list[Connection]:
        found: list[Connection] = []
        for resting in self._resting.values():
            for connection in resting:  # the one that has rested longest is the first
                if connection.rests_since_s > before_s:
                    break
                found.append(connection)
        return found

    # A new one

    async def _open_by(self, deadline_s: float, target: Target) -> Connection:
        async with asyncio.timeout_at(deadline_s):
            addresses = await self._addresses(target)
            self._sockets.make_room()
            self._sockets.count += 1
            try:
                return await self._connect(target, addresses)
            except OSError as error:
                self._sockets.count -= 1
                raise CallFailed(clean(explain_os(error))) from error
            except BaseException:
                self._sockets.count -= 1
                raise

    async def _addresses(self, target: Target) -> list[AddrInfoType]:
        if target.is_address:
            return [_address(target.host, target.port)]
        try:
            found = await self._resolver.resolve(target.host, target.port)
        except OSError as error:
            raise CallFailed(clean(explain_dns(error, target.host))) from error
        return [_address(one["host"], one["port"]) for one in found]

    async def _connect(self, target: Target, addresses: list[AddrInfoType]) -> Connection:
        """Raises OSError."""
        connection = Connection(self, (target.host, target.port))
        if len(addresses) == 1 and not _scope(addresses[0]):
            await self._connect_to(connection, addresses[0])
        else:
            await self._connect_to_one_of(connection, addresses)
        self._open.add(connection)
        if self._is_closed:
            connection.close()
        return connection

    async def _connect_to(self, connection: Connection, address: AddrInfoType) -> None:
        """The loop's own way, which costs less: given an address it looks nothing up."""
        ip, port = address[4][:2]
        if self._deny.denies(ip):
            raise AddressDenied(ip)
        await self._loop.create_connection(lambda: connection, ip, port)

    async def _connect_to_one_of(
        self, connection: Connection, addresses: list[AddrInfoType]
    ) -> None:
        connected = await start_connection(
            addresses,
            happy_eyeballs_delay=NEXT_ADDRESS_S,
            interleave=1,
            socket_factory=self._make_socket,
        )
        try:
            await self._loop.create_connection(lambda: connection, sock=connected)
        except BaseException:
            connected.close()
            raise

    def _make_socket(self, address: AddrInfoType) -> socket.socket:
        """Each attempt at one of several addresses passes here, with the address it is for."""
        family, kind, protocol, _, where = address
        ip = str(where[0])
        if self._deny.denies(ip):
            raise AddressDenied(ip)
        return socket.socket(family, kind, protocol)


async def _answer(
    connection: Connection, data: bytes, reply: Reply, deadline_s: float, *, is_last: bool = False
) -> None:
    """Raises TimeoutError, Stale, CallFailed."""
    try:
        await connection.send(data, reply, deadline_s, is_last=is_last)
    except asyncio.CancelledError:
        connection.close()
        raise


def _scope(address: AddrInfoType) -> int:
    """The number of the network that a link-local IPv6 address is meant in, or 0."""
    return int(address[4][3]) if len(address[4]) == 4 else 0


def _address(ip: str, port: int) -> AddrInfoType:
    if ":" not in ip:
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port)
    ip, _, scope = ip.partition("%")
    number = int(scope) if scope.isdigit() else 0
    return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port, 0, number)
