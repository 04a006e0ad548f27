"""One producer's connection, as long as plain pushes come on it.

    bytes -> [head known by its bytes, body] -> begun at once -> answered in order -> ... -> handed
    over to aiohttp at the first request that is no plain push, once all before it are answered

It must never hold more than one request that is not complete, nor begin what can't be answered:
while too many wait for their answer, or the client doesn't read, nothing more is read from it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from dq.api import wire
from dq.api.answers import Answer, json_answer, problem_answer, to_bytes
from dq.api.app import KEEPALIVE_S
from dq.api.deps import Commits, Schedule
from dq.api.heads import HEAD_BYTES, Head, may_become_plain
from dq.api.problems import Problem, problem_or_log
from dq.api.pushes import Pushes, answer_of, refusal_of, status_of
from dq.queue.schedule import Pushed

HEAD_DEADLINE_S = 30.0
"""How long a head may take to arrive; its body then has wire.BODY_DEADLINE_S."""

MOST_PIPELINED = 256

_END = b"\r\n\r\n"


class Host(Protocol):
    """What a connection needs of those who listen (dq/api/front.py)."""

    commits: Commits
    pushes: Pushes
    schedule: Schedule
    read_head: Callable[[bytes], Head | None]
    next_protocol: Callable[[], asyncio.Protocol]

    def remember(self, connection: Connection, /) -> None: ...
    def forget(self, connection: Connection, /) -> None: ...
    def see_begun(self) -> None: ...
    def see_ended(self) -> None: ...


class Exchange:
    """One request and, as soon as it is known, its answer."""

    __slots__ = ("_connection", "_job", "answer", "closes")

    def __init__(self, connection: Connection, closes: bool) -> None:
        self.closes = closes
        self.answer: Answer | None = None
        self._connection = connection

    def push(self, host: Host, raw: bytes) -> None:
        """Begin a single push."""
        try:
            self._job = host.pushes.read(raw)
        except Exception as error:
            self.refuse(problem_or_log(error, "POST '/v1/jobs'"))
            return
        host.see_begun()
        host.schedule.begin_push(self._job, self._see_pushed)

    def _see_pushed(self, outcome: Pushed | Exception) -> None:
        self._connection.host.see_ended()
        if isinstance(outcome, Exception):
            self.refuse(problem_or_log(refusal_of(self._job, outcome), "POST '/v1/jobs'"))
        else:
            self.answer = json_answer(answer_of(self._job, outcome), status_of(outcome))
            self._connection.send_answers()

    def push_batch(self, host: Host, raw: bytes) -> None:
        """Begin a batch."""
        pushing = host.commits.begin(host.pushes.push_batch(raw))
        pushing.add_done_callback(self._see_batch_pushed)

    def _see_batch_pushed(self, pushing: asyncio.Future[dict[str, Any]]) -> None:
        try:
            doc = pushing.result()
        except Exception as error:
            self.refuse(problem_or_log(error, "POST '/v1/jobs/batch'"))
        else:
            self.answer = json_answer(doc, 200)
            self._connection.send_answers()

    def refuse(self, problem: Problem) -> None:
        """Answer an error."""
        self.answer = problem_answer(problem)
        self.closes = self.closes or problem.closes
        self._connection.send_answers()


class Connection(asyncio.Protocol):
    """The protocol of a connection until it is handed over."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._exchanges: deque[Exchange] = deque()
        self._rest = bytearray()
        """What came and was not taken yet: a part of a request, or more while held."""
        self._needs = 0
        self._awaits_body = False
        self._is_deaf = False
        self._is_held = False
        self._is_leaving = False
        self._is_congested = False
        self._is_lost = False
        self._part_since_s: float | None = None
        self._since_s = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host.remember(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = self._is_deaf = True
        self._exchanges.clear()
        self.host.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._rest or self._is_held:
            self._rest += data
            if self._is_held or len(self._rest) < self._needs:
                return
            data, self._rest = bytes(self._rest), bytearray()
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Begin all requests in `data` that are complete."""
        at = 0
        while at < len(data) and not self._is_deaf:
            if self._is_congested or len(self._exchanges) >= MOST_PIPELINED:
                self._rest += data[at:]
                self._hold()
                return
            end = data.find(_END, at, at + HEAD_BYTES + len(_END))
            head = self.host.read_head(data[at:end]) if end >= 0 else None
            if head is None:
                self._keep_or_leave(data[at:], is_head_cut=end < 0)
                return
            body_at = end + len(_END)
            next_at = body_at + head.length
            if next_at > len(data):
                self._keep(data[at:], next_at - at, awaits_body=True)
                return
            self._begin(head, data[body_at:next_at])
            at = next_at

    def _keep_or_leave(self, rest: bytes, *, is_head_cut: bool) -> None:
        if is_head_cut and may_become_plain(rest):
            self._keep(rest, len(rest) + 1, awaits_body=False)
            return
        self._rest += rest
        self._is_leaving = True
        if self._exchanges:
            self._hold()
        else:
            self._hand_over()

    def _keep(self, part: bytes, needs: int, *, awaits_body: bool) -> None:
        self._rest += part
        self._needs = needs
        if self._part_since_s is None or (awaits_body and not self._awaits_body):
            self._part_since_s = self._loop.time()
        self._awaits_body = awaits_body

    def _begin(self, head: Head, body: bytes) -> None:
        self._part_since_s = None
        self._awaits_body = False
        exchange = Exchange(self, head.closes)
        self._exchanges.append(exchange)
        self._is_deaf = head.closes
        if head.is_batch:
            exchange.push_batch(self.host, body)
        else:
            exchange.push(self.host, body)

    def send_answers(self) -> None:
        """Send what is known, in the order of the requests."""
        exchanges = self._exchanges
        while exchanges and (answer := exchanges[0].answer) is not None:
            exchange = exchanges.popleft()
            self._transport.write(to_bytes(answer, closes=exchange.closes))
            if exchange.closes:
                self._end()
                return
        self._since_s = self._loop.time()
        if self._is_leaving and not exchanges and not self._is_lost:
            self._hand_over()
        elif self._is_held:
            self._go_on()

    def _end(self) -> None:
        """Nothing more is read; what was written still goes out."""
        self._is_deaf = True
        self._exchanges.clear()
        self._transport.close()

    def _hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._is_congested or self._is_leaving or self._is_deaf or not self._is_held:
            return
        if len(self._exchanges) > MOST_PIPELINED // 2:
            return
        self._is_held = False
        self._transport.resume_reading()
        data, self._rest = bytes(self._rest), bytearray()
        self._take(data)

    def pause_writing(self) -> None:
        self._is_congested = True
        self._hold()

    def resume_writing(self) -> None:
        self._is_congested = False
        self._since_s = self._loop.time()
        self._go_on()

    def _hand_over(self) -> None:
        """From here on the connection is aiohttp's."""
        transport, handler = self._transport, self.host.next_protocol()
        self._is_deaf = True
        self.host.forget(self)
        transport.set_protocol(handler)
        handler.connection_made(transport)
        if self._is_held:
            transport.resume_reading()
        if self._is_congested:
            handler.pause_writing()
        handler.data_received(bytes(self._rest))

    def eof_received(self) -> bool:
        """The client has said all; what was begun is still answered."""
        self.stop()
        return True

    def stop(self) -> None:
        """Answer what was begun, then close."""
        self._is_deaf = True
        self._is_leaving = False
        if self._exchanges:
            self._exchanges[-1].closes = True
        else:
            self._end()

    def abort(self) -> None:
        """Close at once, whatever waits."""
        self._transport.abort()

    def look(self, now_s: float) -> None:
        """Close it if its client has kept dq waiting for too long."""
        if self._is_congested:
            if now_s - self._since_s > KEEPALIVE_S:
                self.abort()
        elif self._exchanges or self._is_deaf:
            return
        elif self._part_since_s is not None:
            limit_s = wire.BODY_DEADLINE_S if self._awaits_body else HEAD_DEADLINE_S
            if now_s - self._part_since_s > limit_s:
                self._refuse_slow()
        elif now_s - self._since_s > KEEPALIVE_S:
            self._end()

    def _refuse_slow(self) -> None:
        exchange = Exchange(self, closes=True)
        self._exchanges.append(exchange)
        exchange.refuse(wire.too_slow())
