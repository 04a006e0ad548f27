"""A push, from its JSON to its answer's: the same for every way by which it comes in.

dq/api/front.py takes nearly all of them, aiohttp's handlers in dq/api/jobs.py the rest; what is
read, begun, refused and answered is decided here, so both say the same, byte for byte. Nothing
here knows HTTP beyond a status.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from dq.api.batch import split_batch
from dq.api.deps import Api
from dq.api.job_fields import read_job
from dq.api.problems import Refused, about_job, problem_or_log
from dq.core import clock
from dq.core.errors import DqError, TopicOffline, TopicUnknown
from dq.core.topic import Topic
from dq.queue.schedule import NewJob, Pushed

WRAPPING_BYTES = 64 * 1024
"""Of a push beside its body: names, key, white space."""

BATCH_BYTES = 32 * 1024 * 1024
"""Of a whole batch, unless a single push may be larger still."""

LOOK_MS = 5.0
"""For so long the topics are taken for unchanged."""


class PushDoc(msgspec.Struct, gc=False):
    """What a push is answered. `status`: in a batch, where no other place is for it."""

    topic: str
    id: str
    due: int
    state: str
    result: Literal["created", "replaced", "kept", "redriven"]
    status: int | msgspec.UnsetType = msgspec.UNSET


class Pushes:
    """Reads pushes, has the schedule take them, and says what became of them."""

    def __init__(self, api: Api) -> None:
        self._book = api.topics
        self._looked_ms = 0.0
        self._schedule = api.schedule
        self._max_body = api.settings.max_body
        self.limit_bytes = self._max_body + WRAPPING_BYTES
        self.batch_limit_bytes = max(BATCH_BYTES, self.limit_bytes)

    def read(self, raw: bytes) -> NewJob:
        """The job that a push means. Raises Refused, Invalid, TopicUnknown, TopicOffline."""
        return read_job(raw, self.topic_for_push, clock.now_ms(), self._max_body)

    async def push_batch(self, raw: bytes) -> dict[str, Any]:
        """What a batch is answered: a result for each of its jobs, in order. Once begun, it has to
        be run to its end. Raises Refused and Invalid where the whole can't be read."""
        now_ms = clock.now_ms()
        results: dict[int, Any] = {}
        jobs: dict[tuple[str, str], list[tuple[int, NewJob]]] = defaultdict(list)
        for place, entry in enumerate(split_batch(raw)):
            try:
                job = read_job(entry, self.topic_for_push, now_ms, self._max_body)
            except Exception as error:
                results[place] = problem_or_log(error, "a batch").to_doc()
            else:
                jobs[job.topic, job.id].append((place, job))
        await self._push_all(list(jobs.values()), results)
        return {"results": [results[place] for place in sorted(results)]}

    async def _push_all(
        self, waiting: list[list[tuple[int, NewJob]]], results: dict[int, Any]
    ) -> None:
        """All ids at once, so that they share a sync; the jobs of one id one after the other, as
        the later one must win."""
        while waiting:
            firsts = [same[0] for same in waiting]
            outcomes = await self._push_together([job for _, job in firsts])
            for (place, job), outcome in zip(firsts, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    problem = problem_or_log(outcome, "a push of a batch")
                    results[place] = about_job(problem, job.topic, job.id).to_doc()
                else:
                    results[place] = answer_of(job, outcome)
                    results[place].status = status_of(outcome)
            waiting = [same[1:] for same in waiting if len(same) > 1]

    async def _push_together(self, jobs: Sequence[NewJob]) -> list[Pushed | Exception]:
        outcomes: dict[int, Pushed | Exception] = {}
        has_all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(place: int, outcome: Pushed | Exception) -> None:
            outcomes[place] = outcome
            if len(outcomes) == len(jobs):
                has_all.set_result(None)

        for place, job in enumerate(jobs):
            self._schedule.begin_push(job, partial(tell, place))
        await has_all
        return [outcomes[place] for place in range(len(jobs))]

    def topic_for_push(self, name: str) -> Topic:
        """Raises TopicUnknown, TopicOffline. Whether another process has changed the topics is
        looked up for those that arrive together, and before anyone is refused."""
        now_ms = clock.mono_ms()
        topic = self._book.get(name)
        if now_ms - self._looked_ms > LOOK_MS or topic is None or not topic.enabled:
            self._looked_ms = now_ms
            self._book.refresh()
            topic = self._book.get(name)
        if topic is None:
            raise TopicUnknown(name)
        if not topic.enabled:
            raise TopicOffline(name)
        return topic


def answer_of(job: NewJob, pushed: Pushed) -> PushDoc:
    """What an accepted push is answered."""
    return PushDoc(job.topic, job.id, pushed.due_ms, pushed.state, pushed.result)


def status_of(pushed: Pushed) -> int:
    """Its HTTP status."""
    return 201 if pushed.result == "created" else 200


def refusal_of(job: NewJob, error: Exception) -> Exception:
    """The same error with the job's names in its answer: who left the id out learns which one to
    repeat with. What nobody foresaw is left as it is."""
    if not isinstance(error, DqError):
        return error
    return Refused(about_job(problem_or_log(error, "a push"), job.topic, job.id))
