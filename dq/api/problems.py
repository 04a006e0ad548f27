"""Every error answer of the API, as RFC 9457 problem details.

`answer_error` turns whatever a call raised into one `application/problem+json` answer; no other
module writes an error. A caller may program against `status` and `type`, a person reads `detail`.
It must never let an exception's own text out unless that text was written for a person: what
nobody foresaw is logged whole and answered as a bare 500.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from dq.core import errors
from dq.core.errors import DqError, FieldError

_log = logging.getLogger("dq.api")

_TYPE_PREFIX = "urn:dq:problem:"


@dataclass(frozen=True, slots=True)
class Problem:
    """One error answer. `name` ends its `type`; `more` are extension members of the document."""

    status: int
    name: str
    title: str
    detail: str
    errors: Sequence[FieldError] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    retry_after_s: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False

    def to_doc(self) -> dict[str, Any]:
        """The members of the JSON document."""
        doc: dict[str, Any] = {
            "type": _TYPE_PREFIX + self.name,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            doc["errors"] = self.errors
        if self.retry_after_s is not None:
            doc["retry_after"] = self.retry_after_s
        return doc | dict(self.more)


class Refused(Exception):
    """A call that ends with this problem. For what has no class in core.errors, as only HTTP
    knows it: tokens, media types, sizes, unknown jobs."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    name: str
    title: str
    retry_after_s: int | None = None


# What changes by itself soon (a failover, a queue that drains) is worth an early repetition; what
# waits for an operator is not.
_KINDS: dict[type[DqError], _Kind] = {
    errors.Invalid: _Kind(422, "invalid", "Some fields can't be accepted"),
    errors.TopicUnknown: _Kind(404, "topic-unknown", "Unknown topic"),
    errors.TopicOffline: _Kind(409, "topic-offline", "The topic is off line"),
    errors.DuplicateJob: _Kind(409, "duplicate-job", "The id is taken by an unfinished job"),
    errors.NodeAway: _Kind(503, "node-away", "The job's node is away", 2),
    errors.Overloaded: _Kind(503, "overloaded", "Too much to write just now", 1),
    errors.DiskFull: _Kind(503, "disk-full", "The disk is full", 10),
    errors.NodeFull: _Kind(503, "node-full", "The node is out of memory", 10),
    errors.DatabaseAway: _Kind(503, "database-away", "The database is away", 5),
}

_HTTP_NAMES = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}

_UNEXPECTED = Problem(
    500, "unexpected", "Something went wrong inside dq", "dq's error log has the details"
)


def problem_of(error: Exception) -> Problem | None:
    """The problem that `error` stands for, None for what nobody foresaw."""
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, web.HTTPException):
        return _problem_of_http(error)
    kind = next((_KINDS[base] for base in type(error).__mro__ if base in _KINDS), None)
    if kind is None:
        return None
    fields = error.errors if isinstance(error, errors.Invalid) else ()
    return Problem(kind.status, kind.name, kind.title, str(error), fields, {}, kind.retry_after_s)


def _problem_of_http(error: web.HTTPException) -> Problem:
    """What aiohttp itself refuses: no such path, no such method on it."""
    status = error.status
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    detail = {
        404: "there is nothing at this path; in an id, write / as %2F",
        405: f"this path takes {headers.get('Allow', 'another method')}",
    }.get(status, error.reason)
    name = _HTTP_NAMES.get(status, "http")
    return Problem(status, name, error.reason, detail, headers=headers)


def problem_or_log(error: Exception, what: str) -> Problem:
    """Like `problem_of`; what nobody foresaw goes to the error log with `what` was asked, and
    becomes a 500."""
    problem = problem_of(error)
    if problem is None:
        _log.error("unexpected error in %s", what, exc_info=error)
        return _UNEXPECTED
    return problem


def about_job(problem: Problem, topic: str, id: str) -> Problem:
    """The same with the job's names in it: who left the id out learns which one to repeat with."""
    return replace(problem, more={**problem.more, "topic": topic, "id": id})


def answer_problem(problem: Problem) -> web.Response:
    """The HTTP answer that carries `problem`."""
    headers = CIMultiDict(_FIXED_HEADERS)
    headers.update(problem.headers)
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(problem.retry_after_s)
    body = msgspec.json.encode(problem.to_doc())
    response = web.Response(body=body, status=problem.status, headers=headers)
    if problem.closes:
        response.force_close()
    return response


def answer_error(error: Exception, request: web.Request) -> web.Response:
    """The answer to a call that raised `error`."""
    what = f"{request.method} {request.rel_url.raw_path[:200]!r}"
    return answer_problem(problem_or_log(error, what))


_FIXED_HEADERS = {
    "Content-Type": "application/problem+json",
    "X-Content-Type-Options": "nosniff",
    "Server": "dq",
}
