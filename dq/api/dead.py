"""The calls about dead jobs, many at once: list them, redrive them, forget them.

A call works through a bounded number and tells what came of them; the rest is for the next call.
One at a time runs in each server, to its end even if its client hangs up.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType
from multidict import MultiDict

from dq.api.deps import Commits
from dq.api.fields import Fields
from dq.api.ids import is_good_id
from dq.api.instants import check_due, parse_rfc3339
from dq.api.problems import Problem, Refused
from dq.api.searches import MAX_LIMIT, MAX_TEXT_CHARS, read_search
from dq.api.wire import answer_json, path_part, read_json
from dq.core.errors import DatabaseAway, FieldError, Invalid
from dq.core.topic import fault_of_topic_name, is_topic_name
from dq.db.dead_letters import DeadLine, WantedDead
from dq.journal.dead import Act, DeadJobs, Done

LIMIT_BYTES = 8192
USUAL_LIMIT = 1_000
MOST_LIMIT = 10_000
_MOST_NO = 2**62


class DeadFields(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The JSON object of a call about many."""

    topic: str | UnsetType = UNSET
    q: str | UnsetType = UNSET
    from_: int | str | UnsetType = UNSET
    to: int | str | UnsetType = UNSET
    limit: int = USUAL_LIMIT
    cursor: str | UnsetType = UNSET


_INSTANT = "must be unix milliseconds as a whole number, or an RFC 3339 time as a text"
_WANTS = {
    "topic": "must be a text, the name of a topic",
    "q": f"must be a text of 1 to {MAX_TEXT_CHARS} printable characters",
    "from": _INSTANT,
    "to": _INSTANT,
    "limit": f"must be a whole number from 1 to {MOST_LIMIT}",
    "cursor": "must be the next_cursor that the call before answered",
}


def read_wanted(raw: bytes) -> tuple[WantedDead, int, int | None]:
    """Which dead jobs, how many at most, and below which number. Raises Refused, Invalid."""
    fields = _fields.read(raw)
    wanted = WantedDead(
        topic=None if fields.topic is UNSET else fields.topic,
        q=None if fields.q is UNSET else fields.q,
        from_ms=_instant(fields.from_),
        to_ms=_instant(fields.to),
    )
    return wanted, fields.limit, None if fields.cursor is UNSET else read_cursor(fields.cursor)


def read_cursor(text: str) -> int:
    """Raises Invalid for what no answer gave."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18):
        raise Invalid([FieldError("cursor", _WANTS["cursor"])])
    return int(text)


def _instant(value: int | str | UnsetType) -> int | None:
    if value is UNSET:
        return None
    return parse_rfc3339(value) if isinstance(value, str) else check_due(value)


def _faults(fields: DeadFields) -> list[FieldError]:
    faults = []
    if fields.topic is not UNSET and not is_topic_name(fields.topic):
        faults.append(FieldError("topic", fault_of_topic_name(fields.topic)))
    if fields.q is not UNSET and not _is_good_text(fields.q):
        faults.append(FieldError("q", _WANTS["q"]))
    if not 1 <= fields.limit <= MOST_LIMIT:
        faults.append(FieldError("limit", _WANTS["limit"]))
    for name, value in (("from", fields.from_), ("to", fields.to)):
        try:
            _instant(value)
        except ValueError as error:
            faults.append(FieldError(name, str(error)))
    return faults


def _is_good_text(text: str) -> bool:
    return 0 < len(text) <= MAX_TEXT_CHARS and text.isprintable()


_fields = Fields(DeadFields, _WANTS, _faults)


class DeadCalls:
    """Handlers of /v1/dead."""

    def __init__(self, dead: DeadJobs, commits: Commits) -> None:
        self._dead = dead
        self._commits = commits
        self._is_busy = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/dead", self.list),
            web.post("/v1/dead/redrive", self.redrive),
            web.post("/v1/dead/drop", self.drop),
            web.delete("/v1/dead/{topic:[^/]+}/{id:[^/]+}", self.drop_one),
        ]

    async def list(self, request: web.Request) -> web.Response:
        query = MultiDict(request.query)
        cursors = query.popall("cursor", [])
        search = read_search(query)
        if search.state is not None or search.key is not None:
            name = "state" if search.state is not None else "key"
            raise Invalid([FieldError(name, "is no parameter here; q looks into keys too")])
        wanted = WantedDead(search.topic, search.q, search.from_ms, search.to_ms)
        below = read_cursor(cursors[0]) if cursors else None
        page = await self._dead.page(wanted, min(search.limit, MAX_LIMIT), below)
        cursor = None if page.below is None else str(page.below)
        data = [_line_doc(line) for line in page.jobs]
        return answer_json({"data": data, "next_cursor": cursor, "has_more": cursor is not None})

    async def redrive(self, request: web.Request) -> web.Response:
        return await self._work(request, "redrive")

    async def drop(self, request: web.Request) -> web.Response:
        return await self._work(request, "drop")

    async def _work(self, request: web.Request, act: Act) -> web.Response:
        raw = await read_json(request, LIMIT_BYTES) if request.body_exists else b"{}"
        wanted, limit, below = read_wanted(raw)
        if self._is_busy:
            raise Refused(_BUSY)
        self._is_busy = True
        try:
            done = await self._commits.run(self._carry_out(act, wanted, limit, below))
        finally:
            self._is_busy = False
        return answer_json(_done_doc(act, done))

    async def _carry_out(self, act: Act, wanted: WantedDead, limit: int, below: int | None) -> Done:
        """What was done before SQL went away is told, not lost."""
        total = Done(below=below)

        def note(done: Done) -> None:
            nonlocal total
            total = done

        try:
            return await self._dead.run(act, wanted, limit, below, note)
        except DatabaseAway as error:
            if total.matched == 0:
                raise
            total.trouble = str(error)
            return total

    async def drop_one(self, request: web.Request) -> web.Response:
        topic, id = path_part(request, 2), path_part(request, 3)
        is_name = is_topic_name(topic) and is_good_id(id)
        if not is_name or not await self._commits.run(self._dead.one("drop", topic, id)):
            raise Refused(_not_dead(topic, id))
        return answer_json({"result": "dropped"})


def _line_doc(line: DeadLine) -> dict[str, Any]:
    return {
        "topic": line.topic,
        "id": line.id,
        "died": line.at_ms,
        "attempt": line.attempt,
        "status": line.status,
        "detail": line.detail,
        "reply": line.reply,
        "key": line.bkey or None,
        "created": line.created,
        "size": line.size,
    }


def _done_doc(act: Act, done: Done) -> dict[str, Any]:
    cursor = None if done.below is None else str(done.below)
    doc = {
        "matched": done.matched,
        "redriven" if act == "redrive" else "dropped": done.done,
        "gone": done.gone,
        "failed": done.failed,
        "reasons": done.reasons,
        "next_cursor": cursor,
        "has_more": cursor is not None,
    }
    return {**doc, "trouble": done.trouble} if done.trouble else doc


_BUSY = Problem(
    409,
    "dead-running",
    "Dead jobs are being worked through",
    "one such call at a time in each server; wait for it, then repeat for the rest",
)


def _not_dead(topic: str, id: str) -> Problem:
    detail = f"topic {topic!r} has no dead job {id!r}"
    return Problem(404, "job-unknown", "No dead job of this id", detail)
