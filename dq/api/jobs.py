"""The calls about jobs: push, look, cancel, move, run, redrive.

A call parses, asks the schedule or the journal, and answers; it decides nothing about a job's
state itself. What changes a job runs in a task of its own (Commits), so that a client which hangs
up can't cut it. An error is raised, never written here: the door makes the answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from dq.api.deps import Api, Commits, JobRecord
from dq.api.ids import is_good_id
from dq.api.job_fields import read_due
from dq.api.problems import Problem, Refused
from dq.api.pushes import WRAPPING_BYTES, Pushes, answer_of, refusal_of, status_of
from dq.api.wire import answer_json, path_part, read_json
from dq.core import clock
from dq.core.errors import DatabaseAway, DqError
from dq.core.topic import is_topic_name
from dq.queue.records import PRIORITIES
from dq.queue.schedule import JobView, NewJob


class JobCalls:
    """Handlers of /v1/jobs."""

    def __init__(self, api: Api, commits: Commits) -> None:
        self._api = api
        self._commits = commits
        self._pushes = Pushes(api)

    def routes(self) -> list[web.RouteDef]:
        """`[^/]+`, as aiohttp's own pattern refuses braces."""
        job = "/v1/jobs/{topic:[^/]+}/{id:[^/]+}"
        return [
            web.post("/v1/jobs", self.push),
            web.post("/v1/jobs/batch", self.push_batch),
            web.get(job, self.get),
            web.delete(job, self.cancel),
            web.patch(job, self.move),
            web.post(job + "/run", self.run),
            web.post(job + "/redrive", self.redrive),
        ]

    async def push(self, request: web.Request) -> web.Response:
        job = self._pushes.read(await read_json(request, self._pushes.limit_bytes))
        try:
            pushed = await self._commits.run(self._api.schedule.push(job))
        except DqError as error:
            raise refusal_of(job, error) from error
        return answer_json(answer_of(job, pushed), status_of(pushed))

    async def push_batch(self, request: web.Request) -> web.Response:
        raw = await read_json(request, self._pushes.batch_limit_bytes)
        return answer_json(await self._commits.run(self._pushes.push_batch(raw)))

    async def get(self, request: web.Request) -> web.Response:
        topic, id = _names(request)
        view = await self._api.schedule.find(topic, id)
        if view is None:
            record = await self._api.journal.record(topic, id)
            if record is None:
                raise Refused(_unknown_job(topic, id))
            return answer_json({**_job_doc(record), "history": _history_doc(record)})
        return answer_json({**_job_doc(view), **await self._history_of(view)})

    async def _history_of(self, view: JobView) -> dict[str, Any]:
        """An unfinished job is told about even while the database is away."""
        try:
            record = await self._api.journal.record(view.topic, view.id)
        except DatabaseAway as error:
            return {"history": [], "history_error": str(error)}
        return {"history": _history_doc(record) if record else []}

    async def cancel(self, request: web.Request) -> web.Response:
        topic, id = _names(request)
        result = await self._commits.run(self._api.schedule.cancel(topic, id))
        if result is None:
            raise Refused(_no_unfinished_job(topic, id))
        return answer_json({"result": result})

    async def move(self, request: web.Request) -> web.Response:
        topic, id = _names(request)
        raw = await read_json(request, WRAPPING_BYTES)
        return await self._reschedule(topic, id, read_due(raw, clock.now_ms()))

    async def run(self, request: web.Request) -> web.Response:
        topic, id = _names(request)
        return await self._reschedule(topic, id, clock.now_ms())

    async def _reschedule(self, topic: str, id: str, due_ms: int) -> web.Response:
        result = await self._commits.run(self._api.schedule.reschedule(topic, id, due_ms))
        if result is None:
            raise Refused(_no_unfinished_job(topic, id))
        if result == "running":
            raise Refused(_running(topic, id))
        doc = {"topic": topic, "id": id, "due": due_ms, "state": result, "result": "rescheduled"}
        return answer_json(doc)

    async def redrive(self, request: web.Request) -> web.Response:
        topic, id = _names(request)
        if (view := await self._api.schedule.find(topic, id)) is not None:
            raise Refused(_not_dead(topic, id, view.state))
        record = await self._api.journal.record(topic, id)
        if record is None:
            raise Refused(_unknown_job(topic, id))
        if record.state != "dead":
            raise Refused(_not_dead(topic, id, record.state))
        self._pushes.topic_for_push(topic)
        job = _again(record)
        answer = answer_of(job, await self._commits.run(self._api.schedule.push(job)))
        answer.result = "redriven"
        return answer_json(answer)


def _again(record: JobRecord) -> NewJob:
    """A dead job as a new one, due now. Rejected if someone else was quicker."""
    return NewJob(
        topic=record.topic,
        id=record.id,
        body=record.body,
        due_ms=clock.now_ms(),
        priority=PRIORITIES.index(record.priority),
        key=record.key,
        on_duplicate="reject",
    )


def _names(request: web.Request) -> tuple[str, str]:
    """Topic and id out of the path. What can't be a name can't be a job's: Refused 404."""
    topic, id = path_part(request, 2), path_part(request, 3)
    if not is_topic_name(topic) or not is_good_id(id):
        raise Refused(_unknown_job(topic, id))
    return topic, id


def _job_doc(job: JobView | JobRecord) -> dict[str, Any]:
    return {
        "topic": job.topic,
        "id": job.id,
        "state": job.state,
        "due": job.due_ms,
        "attempt": job.attempt,
        "body": msgspec.Raw(job.body or b"null"),  # none: SQL refused the row with it
        "priority": job.priority,
        "key": job.key or None,
        "created": job.created_ms,
    }


def _history_doc(record: JobRecord) -> list[dict[str, Any]]:
    return [
        {
            "at": entry.at_ms,
            "state": entry.state,
            "attempt": entry.attempt,
            "status": entry.status,
            "detail": entry.detail,
        }
        for entry in record.history
    ]


def _unknown_job(topic: str, id: str) -> Problem:
    return Problem(404, "job-unknown", "Unknown job", f"topic {topic!r} never had a job {id!r}")


def _no_unfinished_job(topic: str, id: str) -> Problem:
    detail = (
        f"topic {topic!r} has no unfinished job {id!r}; GET tells whether it is finished, "
        "and a dead one comes back by POST .../redrive"
    )
    return Problem(404, "job-unknown", "No unfinished job of this id", detail)


def _running(topic: str, id: str) -> Problem:
    detail = f"job {id!r} of topic {topic!r} is being called back just now; nothing was changed"
    return Problem(409, "job-running", "The job is running", detail)


def _not_dead(topic: str, id: str, state: str) -> Problem:
    detail = f"job {id!r} of topic {topic!r} is {state}; only a dead one can be redriven"
    return Problem(409, "job-not-dead", "The job is not dead", detail)
