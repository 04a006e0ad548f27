"""One plain connection: a request out, a reply in, as often as the server likes it.

A reply is whole when its framing says so (a length, a last chunk, the connection's end); what comes
before it is skipped if it is interim, what comes after it makes the connection unfit for another
request, as do bytes that arrive while it rests: they must never become the answer to the next job.
The head and the framing of a reply have limits of their own, its body is read to MAX_REPLY.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from dq.delivery.parser import make_parser, parser_reason
from dq.delivery.reasons import (
    BROKE_OFF,
    LONG_HEAD,
    NO_REPLY,
    CallFailed,
    broken_reply,
    explain_os,
)
from dq.delivery.reply import ENDLESS_INTERIM, MAX_INTERIM, MAX_REPLY, Reply

MAX_HEAD = 64 * 1024
MAX_FRAMING = 1024 * 1024
"""Bytes that came, of a reply whose body is still within its limit: chunks of one byte each, with
their lengths, are less."""


class Stale(Exception):
    """The server closed a connection that had served before, without a word about this request."""


class Waiter(Protocol):
    """Who waits for a reply: a future, or what behaves like one."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class Home(Protocol):
    """Where connections live (dq/delivery/pool.py)."""

    def rest(self, connection: Connection) -> None:
        """It is free for another request."""

    def wake(self, connection: Connection) -> None:
        """It is free no more, if it was."""

    def lose(self, connection: Connection) -> None:
        """Its socket is closed."""


class Connection(asyncio.Protocol):
    """Serves one request at a time."""

    def __init__(self, home: Home, key: tuple[str, int]) -> None:
        self.key = key
        self.rests_since_s = 0.0
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._parser: HttpResponseParser | None = make_parser(self)
        self._waiter: Waiter | None = None
        self._served = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rings_s = 0.0

    # The caller's side

    def send(
        self, request: bytes, reply: Reply, deadline_s: float, *, is_last: bool = False
    ) -> asyncio.Future[None]:
        """Send a request; done when `reply` is whole, or has been cut. The future raises what
        `begin` tells a waiter; whoever stops waiting for it must close."""
        waiter = self._loop.create_future()
        self.begin(request, reply, deadline_s, waiter, is_last=is_last)
        return waiter

    def begin(
        self,
        request: bytes,
        reply: Reply,
        deadline_s: float,
        waiter: Waiter,
        *,
        is_last: bool = False,
    ) -> None:
        """Send a request; `waiter` is told when `reply` is whole, or has been cut, and otherwise
        of TimeoutError, Stale or CallFailed.

        `deadline_s` is on the loop's clock, `is_last`: the connection isn't kept.
        """
        self._reply = reply
        self._pieces: list[bytes] = []
        self._size = self._heard = self._interim = 0
        self._has_head = self._has_length = self._is_whole = False
        self._is_kept = not is_last
        self._retry_after = b""
        self._served += 1
        self._waiter = waiter
        self._deadline_s = deadline_s
        if self._timer is None or deadline_s < self._rings_s:
            self._set_timer()
        self._transport.write(request)

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """At once; a request under way fails."""
        self._home.wake(self)
        self._stop_timer()
        self._transport.abort()
        if self._waiter is not None:
            self._fail(CallFailed("the call was ended"))

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._parser is None:
            self.close()
            return
        self._heard += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._is_kept = False
        except HttpParserError as error:
            if not self._is_whole:
                self._fail(CallFailed(parser_reason(error, self._interim)))
            self._is_kept = False
        if self._is_whole:
            self._finish()
        elif self._waiter is not None:
            self._check_limits()

    def eof_received(self) -> None:
        self._transport.abort()  # what it hasn't read by now it won't

    def connection_lost(self, error: Exception | None) -> None:
        self._home.wake(self)
        self._home.lose(self)
        self._stop_timer()
        self._parser = None  # it knows us: a circle
        if self._waiter is None:
            return
        if error is None and self._has_head and not self._has_length:
            self._finish()
        elif self._heard:
            self._fail(CallFailed(BROKE_OFF))
        elif self._served > 1:
            self._fail(Stale())
        else:
            reason = explain_os(error) if isinstance(error, OSError) else NO_REPLY
            self._fail(CallFailed(reason))

    # The parser's side

    def on_message_begin(self) -> None:
        if self._is_whole:
            raise ValueError("more than one reply")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if self._has_head:
            return  # a trailer
        if name == b"content-length":
            self._has_length = True
        elif name == b"transfer-encoding":
            self._has_length = value.lower().rstrip().endswith(b"chunked")
        elif name == b"retry-after":
            self._retry_after = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._interim += 1
            self._has_length, self._retry_after = False, b""
            if self._interim == MAX_INTERIM:
                raise ValueError(ENDLESS_INTERIM)
            return
        self._has_head = True
        self._is_kept = self._is_kept and status != 101 and self._parser.should_keep_alive()
        self._reply.status = status
        if self._retry_after:
            self._reply.read_retry_after(self._retry_after.decode("latin-1"))

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._pieces.append(body)
        if self._size > MAX_REPLY:
            self._is_whole = True
            self._is_kept = False
            raise ValueError("it is cut here")

    def on_message_complete(self) -> None:
        self._is_whole = self._has_head

    # How it ends

    def _check_limits(self) -> None:
        if not self._has_head and self._heard > MAX_HEAD:
            self._fail(CallFailed(LONG_HEAD))
        elif self._heard > MAX_FRAMING:
            self._fail(CallFailed(broken_reply("endless framing")))

    # Most replies come long before their deadline: a timer of each would be set and cancelled for
    # nothing. This one goes on ringing for the request before, and then looks for how long more.

    def _set_timer(self) -> None:
        self._stop_timer()
        self._rings_s = self._deadline_s
        self._timer = self._loop.call_at(self._rings_s, self._see_time)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _see_time(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._deadline_s > self._rings_s:
            self._set_timer()
        else:
            self._fail(TimeoutError())

    def _finish(self) -> None:
        """The reply is whole. The connection rests before anyone can want it."""
        waiter = self._settle()
        is_sent = self._transport.get_write_buffer_size() == 0
        if self._is_kept and is_sent and not self._transport.is_closing():
            self._home.rest(self)
        else:
            self.close()
        if not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        waiter = self._settle()
        self.close()
        if not waiter.done():
            waiter.set_exception(error)

    def _settle(self) -> Waiter:
        waiter, self._waiter = self._waiter, None
        assert waiter is not None
        self._reply.keep(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
        return waiter
