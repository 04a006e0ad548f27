"""One replay in the admin: reads the logs for people, then pushes again what they say is missing.

It reads in a thread and goes on when nobody looks. It can be stopped at any moment and ends with
the process; what was pushed by then is pushed, and the same replay again does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from dq.core.errors import DqError
from dq.journal.push_again import Again, Ask, Batch, Known, Outcome, PushingAgain
from dq.journal.replay import Replay, Unfinished, Window
from dq.queue.records import PRIORITIES
from dq.queue.schedule import NewJob
from dq.web.deps import Admin

_log = logging.getLogger(__name__)

AT_ONCE = 50
"""So many pushes are on their way at a time: producers come first."""


class _Stopped(Exception):
    """Somebody pressed the button."""


class ReplayWork:
    """`state`: reading, found, pushing, then done, stopped or failed, which `trouble` explains.
    `address`: of the page that shows it."""

    def __init__(self, admin: Admin, window: Window, address: str) -> None:
        self._admin = admin
        self.window = window
        self.address = address
        self.has_read = False
        self.state = "reading"
        self.trouble = ""
        self.found: list[Unfinished] = []
        self.pushing = PushingAgain()
        self.read_bytes = self.total_bytes = 0
        self._is_stopping = False
        self._replay = Replay(admin.settings.log_dir, window, self._told)
        self._running: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.state in ("reading", "pushing")

    @property
    def dealt_with(self) -> int:
        """How many of `found` have been looked after."""
        return self.pushing.counts.total() + self._replay.replaced

    @property
    def broken(self) -> int:
        """Lines that could not be read."""
        return self._replay.broken

    @property
    def lost(self) -> int:
        """Bodies that could not be read again."""
        return self.pushing.lost(self._replay, self.found) if self.state == "done" else 0

    def read(self) -> None:
        """Begin to look what is missing."""
        self._begin("reading", "found", self._read)

    def push(self, end: Callable[[], Awaitable[None]]) -> None:
        """Begin to push it again; `end` is called when that is over, however it ended."""

        async def push() -> None:
            try:
                await self._push()
            finally:
                await end()

        self.pushing = PushingAgain()
        self._begin("pushing", "done", push)

    def stop(self) -> None:
        """As soon as what is on its way has arrived."""
        self._is_stopping = True

    async def end(self) -> None:
        """Stop, and wait for it."""
        self.stop()
        if self._running is not None:
            await asyncio.wait({self._running})

    def _begin(self, during: str, after: str, work: Callable[[], Awaitable[None]]) -> None:
        self.state = during
        self._is_stopping = False
        self._running = asyncio.create_task(self._run(work, after))

    async def _run(self, work: Callable[[], Awaitable[None]], after: str) -> None:
        try:
            await work()
            self.state = after
        except _Stopped:
            self.state = "stopped"
        except (DqError, OSError) as error:
            self.state, self.trouble = "failed", str(error)
        except Exception:
            _log.exception("a replay failed")
            self.state, self.trouble = "failed", "the error log has the details"

    def _told(self, count: int) -> None:
        """Called in the thread that reads."""
        self.read_bytes += count
        if self._is_stopping:
            raise _Stopped

    async def _read(self) -> None:
        self.total_bytes = await asyncio.to_thread(self._replay.total_bytes)
        self.found = await asyncio.to_thread(self._replay.find)
        self.has_read = True

    async def _push(self) -> None:
        steps = self.pushing.steps(self._replay, self.found)
        answer: Any = None
        while (step := await asyncio.to_thread(_next, steps, answer)) is not None:
            if self._is_stopping:
                raise _Stopped
            answer = await (self._ask(step) if isinstance(step, Ask) else self._push_batch(step))

    async def _ask(self, step: Ask) -> Known | None:
        view = await self._admin.schedule.find(step.topic, step.id)
        if view is not None:
            return Known(view.state, view.created_ms)
        record = await self._admin.reader.record(step.topic, step.id)
        return None if record is None else Known(record.state, record.created_ms)

    async def _push_batch(self, step: Batch) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(step.jobs), AT_ONCE):
            some = step.jobs[start : start + AT_ONCE]
            outcomes += await asyncio.gather(*map(self._push_one, some))
        return outcomes

    async def _push_one(self, job: Again) -> Outcome:
        topic = self._admin.topics.get(job.topic)
        if topic is None:
            return Outcome("", "its topic is not registered any more")
        if not topic.enabled:
            return Outcome("", "its topic is off line")
        new = NewJob(
            topic=job.topic,
            id=job.id,
            body=bytes(job.body),
            due_ms=job.due_ms,
            absolute=True,
            priority=PRIORITIES.index(job.priority) if job.priority in PRIORITIES else 1,
            timeout_ms=round(job.timeout_s * 1000),
            key=job.key,
            on_duplicate="keep",
        )
        try:
            return Outcome((await self._admin.schedule.push(new)).result)
        except DqError as error:
            return Outcome("", str(error))


def _next(steps: Generator[Ask | Batch, Any, None], answer: Any) -> Ask | Batch | None:
    """None at the end: a StopIteration can't cross from a thread."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None
