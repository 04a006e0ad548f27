"""The calls that put back what the nodes have lost: POST /v1/restore and /v1/restore/{topic}/{id}.

A whole restore may take minutes. One at a time runs in each server; it goes on when its client
hangs up, ends when the server stops, and may be asked for again at any time: what is there already
is left alone.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from dq.api.deps import Api, Audited
from dq.api.fields import did_you_mean, shorten
from dq.api.ids import is_good_id
from dq.api.problems import Problem, Refused
from dq.api.wire import answer_json, malformed, path_part, read_json
from dq.core.errors import FieldError, Invalid
from dq.core.topic import is_topic_name

LIMIT_BYTES = 4096


class RestoreCalls:
    """Handlers of /v1/restore."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._running: asyncio.Task[Audited] | None = None

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/restore", self.restore),
            web.post("/v1/restore/{topic:[^/]+}/{id:[^/]+}", self.restore_one),
        ]

    async def restore(self, request: web.Request) -> web.Response:
        overdue = True
        if request.body_exists:
            overdue = read_overdue(await read_json(request, LIMIT_BYTES))
        if self._running is not None:
            raise Refused(_RUNNING)
        self._running = asyncio.create_task(self._api.audit.run(overdue=overdue, adopt=True))
        try:
            found = await asyncio.shield(self._running)
        except asyncio.CancelledError:
            raise Refused(_STOPPED) from None
        finally:
            self._running = None
        return answer_json(msgspec.to_builtins(found))

    async def restore_one(self, request: web.Request) -> web.Response:
        topic, id = path_part(request, 2), path_part(request, 3)
        is_name = is_topic_name(topic) and is_good_id(id)
        result = await self._api.audit.restore_one(topic, id) if is_name else None
        if result not in ("restored", "present"):
            raise Refused(_not_unfinished(topic, id, result))
        return answer_json({"result": result})

    async def stop(self, _: web.Application) -> None:
        """The server is about to stop: what was put back stays, the rest is for another call."""
        if self._running is not None:
            self._running.cancel()


def read_overdue(raw: bytes) -> bool:
    """`overdue` out of the document, true unless told. Raises Refused, Invalid."""
    try:
        doc: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(malformed(f"the body is no JSON: {error}")) from None
    if not isinstance(doc, dict):
        raise Invalid([FieldError("", 'must be an object, e.g. {"overdue": true}')])
    for name in doc:
        if name != "overdue":
            hint = did_you_mean(name, ["overdue"])
            raise Invalid([FieldError(shorten(name), f"is no field of a restore{hint}")])
    overdue = doc.get("overdue", True)
    if not isinstance(overdue, bool):
        raise Invalid([FieldError("overdue", "must be true or false")])
    return overdue


_RUNNING = Problem(
    409, "restore-running", "A restore is under way", "wait for it, then repeat if need be"
)
_STOPPED = Problem(
    503,
    "restore-stopped",
    "The restore was cut short",
    "this server stops; what was put back stays, repeat the call for the rest",
    retry_after_s=2,
)


def _not_unfinished(topic: str, id: str, state: str | None) -> Problem:
    if state is None:
        detail = f"topic {topic!r} never had a job {id!r}"
    else:
        detail = f"job {id!r} of topic {topic!r} is {state}: there is nothing to restore"
    return Problem(404, "job-unknown", "No unfinished job of this id", detail)
