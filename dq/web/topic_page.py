"""A topic's own page: what it is, how it does, and a test callback.

The test goes through the very code that delivers, deny list and all, and is judged by it; nothing
is leased or settled, so no job, count or history knows of it, only the log of changes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from dq.core.backoff import parse_backoff
from dq.core.callback import CallbackJob, CallbackRequest
from dq.core.errors import DatabaseAway
from dq.core.outcome import Answer, Dead, Done, Retry, Verdict, decide
from dq.core.topic import Topic
from dq.db.attempts import Attempt
from dq.db.counts import MinuteCounts, TopicCounts
from dq.db.rows import State
from dq.delivery.attempt import REPLY_KEPT, call_and_judge
from dq.delivery.http import Caller
from dq.queue.inspect import TopicLook
from dq.web.deps import Admin
from dq.web.forms import read_form
from dq.web.job_body import visible
from dq.web.pages import Pages, with_query
from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.topic_edit import find_topic
from dq.web.topic_form import backoff_words, guarded, number_text, span_words
from dq.web.topic_list import day_start_ms, line_of
from dq.web.visitor import visitor_of

MINUTE_MS = 60_000
MINUTES = 60
ATTEMPTS = 20
MOST_COUNTED = 10_000
MOST_TEST_S = 30.0
MOST_TESTS = 5
TEST_BODY = '{"test": true}'
_RESULTS = {State.DONE: "done", State.DEAD: "dead", State.DELAYED: "retry"}


@dataclass(frozen=True)
class Told:
    """What SQL knows of a topic; empty while it is away, for which `away` says why."""

    counts: TopicCounts | None = None
    minutes: list[MinuteCounts] | None = None
    attempts: tuple[Attempt, ...] = ()
    unfinished: int | None = None
    away: str = ""


@dataclass(frozen=True)
class Tested:
    """A test callback: what went out, what came back, and what it would have meant."""

    request: CallbackRequest
    answer: Answer
    verdict: Verdict
    end: Done | Retry | Dead
    now_ms: int

    @property
    def body(self) -> str:
        return visible((self.request.body or b"").decode(errors="replace"))

    @property
    def reply(self) -> str:
        return visible(self.answer.body[:REPLY_KEPT].decode(errors="replace"))

    @property
    def retry_s(self) -> float | None:
        """After how long a job would be retried; None when it would not be."""
        return (self.end.due_ms - self.now_ms) / 1000 if isinstance(self.end, Retry) else None


class TopicPage:
    """Handlers of /topics/{topic} and its test."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages
        self._testing = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/topics/{topic}", self.show),
            web.post("/topics/{topic}/test", self.test),
        ]

    async def show(self, request: web.Request) -> web.Response:
        topic = find_topic(self._admin, request)
        told, looks = await asyncio.gather(
            self._ask_sql(topic.topic), self._admin.inspector.topics([topic.topic])
        )
        look, words = looks[topic.topic], visitor_of(request).words
        return await self._pages.show(
            request,
            "topics/one.html",
            tab="topics",
            topic=topic,
            line=line_of(topic),
            told=told,
            states=_states(told, look),
            most=MOST_COUNTED,
            first_ms=self._first_ms(),
            results=_RESULTS,
            headers=_headers(topic, visitor_of(request).may_change),
            backoff=self._backoff(request, topic),
            delay=span_words(words, topic.delay),
            timeout=span_words(words, topic.timeout),
            number_text=number_text,
            push=with_query("/jobs/new", topic=topic.topic, body=TEST_BODY, delay=5),
            test_body=TEST_BODY,
        )

    async def test(self, request: web.Request) -> web.Response:
        """Call back once with the body that is given, and show all of it."""
        form = await read_form(request)
        topic = find_topic(self._admin, request)
        body = form.raw("body").strip()
        tested = None
        if topic.callback is None:
            raise Refusal(409, Say("A pull topic has no callback to test: its jobs are leased."))
        try:
            msgspec.json.decode(body.encode(errors="replace"), type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError) as error:
            form.fault("body", Say('is no JSON: {why}. A text needs quotes: "text"', why=error))
        if not form.faults:
            tested = await self._call(topic, body.encode(errors="replace"))
            detail = f"{tested.verdict.detail}, {tested.answer.ms} ms"
            await self._admin.note(request, "topic.test", topic.topic, after=detail)
        return await self._pages.show(
            request,
            "topics/test.html",
            tab="topics",
            status=422 if form.faults else 200,
            topic=topic,
            line=line_of(topic),
            form=form,
            tested=tested,
            span=_span(request, tested),
        )

    async def _call(self, topic: Topic, body: bytes) -> Tested:
        if self._testing >= MOST_TESTS:
            raise Refusal(429, Say("Too many test callbacks at once; wait for those under way."))
        settings, now_ms = self._admin.settings, self._admin.now_ms()
        job = CallbackJob(
            topic=topic.topic,
            id=f"test-{secrets.token_hex(4)}",
            body=body,
            due_ms=now_ms,
            created_ms=now_ms,
            attempt=1,
            timeout_s=min(topic.timeout, MOST_TEST_S),
            message_id=f"test-{secrets.token_hex(8)}",
        )
        # A caller of its own: the test meets a fresh connection and leaves none behind.
        caller = Caller(settings.callback_deny, limit=1)
        self._testing += 1
        try:
            called, answer, verdict = await call_and_judge(caller, topic, job)
        finally:
            self._testing -= 1
            await caller.close()
        backoff, unit_s = parse_backoff(topic.backoff), settings.retry_unit_s
        end = decide(verdict, answer, topic, backoff, 0, unit_s, now_ms)
        return Tested(called, answer, verdict, end, now_ms)

    async def _ask_sql(self, name: str) -> Told:
        admin, first_ms = self._admin, self._first_ms()
        try:
            counts, minutes, attempts, unfinished = await asyncio.gather(
                admin.counts.of_topics([name], day_start_ms(admin.now_ms())),
                admin.counts.per_minute(first_ms, first_ms + MINUTES * MINUTE_MS, name),
                admin.attempts.last(name, ATTEMPTS),
                admin.attempts.count_unfinished(name, MOST_COUNTED),
            )
        except DatabaseAway as error:
            return Told(away=error.detail)
        return Told(counts[name], minutes, tuple(attempts), unfinished)

    def _first_ms(self) -> int:
        """When the first of the last MINUTES minutes began; the present one is the last."""
        return (self._admin.now_ms() // MINUTE_MS - MINUTES + 1) * MINUTE_MS

    def _backoff(self, request: web.Request, topic: Topic) -> str:
        words, unit_s = visitor_of(request).words, self._admin.settings.retry_unit_s
        return backoff_words(words, topic.backoff, topic.max_retries, unit_s)


def _states(told: Told, look: TopicLook) -> Mapping[str, int | None]:
    """Unfinished jobs by state. Delayed is what the journal counts beyond those on the nodes that
    are ready or running; the two are asked apart, so it may be off by those that just moved."""
    delayed = told.unfinished
    if delayed is not None and delayed < MOST_COUNTED:
        delayed = max(0, delayed - look.ready - look.running)
    return {"delayed": delayed, "ready": look.ready, "running": look.running}


def _headers(topic: Topic, may_change: bool) -> list[tuple[str, str]]:
    """Who may not change a topic sees no value that opens something."""
    pairs: Any = topic.headers.items()
    return [(name, value if may_change else guarded(name, value)) for name, value in pairs]


def _span(request: web.Request, tested: Tested | None) -> str:
    if tested is None or tested.retry_s is None:
        return ""
    return span_words(visitor_of(request).words, tested.retry_s)
