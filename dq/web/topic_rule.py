"""The tester for retry_if: a rule against a sample reply, part by part, and against the past.

It is `core.rule` and `core.outcome` that decide, the very code that judges callbacks; this page
only shows what they said. Trying changes nothing, saving changes the rule alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass

import msgspec
from aiohttp import web

from dq.core.errors import DatabaseAway
from dq.core.outcome import Answer, Verdict, judge
from dq.core.rule import Rule, RuleError, parse_rule
from dq.core.rule_parts import Comparison, Operand
from dq.core.topic import Topic
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.topic_backtest import MOST, BackTest, back_test
from dq.web.topic_edit import find_topic
from dq.web.topic_form import readable, rule_spot
from dq.web.visitor import visitor_of

_SAMPLE = '{"code": 200}'
_MOST_VALUE_CHARS = 200
_STATUS = re.compile(r"[1-5][0-9]{2}", re.ASCII)


@dataclass(frozen=True)
class Part:
    """One comparison: as it was written, what it came to, and what its references stood for."""

    text: str
    holds: bool
    values: list[tuple[str, str]]


@dataclass(frozen=True)
class Tried:
    """A rule on a sample: its parts, the rule as a whole, and the verdict on the callback."""

    parts: list[Part]
    holds: bool
    verdict: Verdict
    is_json: bool


class RulePage:
    """Handlers of /topics/{topic}/rule."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/topics/{topic}/rule", self.show),
            web.post("/topics/{topic}/rule", self.act),
        ]

    async def show(self, request: web.Request) -> web.Response:
        if not visitor_of(request).may_change:
            raise Refusal(403, Say("You may look at everything here, but change nothing."))
        topic = find_topic(self._admin, request)
        sample, status = await self._newest_reply(topic)
        fields = {"rule": topic.retry_if, "reply": sample, "status": status}
        return await self._show(request, topic, Form(fields))

    async def act(self, request: web.Request) -> web.Response:
        """Try the rule on the sample, on the past, or save it: as the button says."""
        form = await read_form(request)
        topic = find_topic(self._admin, request)
        try:
            rule = parse_rule(form.raw("rule").rstrip())
        except RuleError as error:
            form.fault("rule", str(error))
            return await self._show(request, topic, form, status=422)
        try:
            if form.text("act") == "save":
                return await self._save(request, topic.topic, form, rule)
            if form.text("act") == "past":
                return await self._show_past(request, topic, form, rule)
        except DatabaseAway as error:
            return await self._show(request, topic, form, away=error.detail, status=503)
        tried = try_rule(topic, rule, form)
        status = 422 if tried is None else 200
        return await self._show(request, topic, form, tried=tried, status=status)

    async def _save(self, request: web.Request, name: str, form: Form, rule: Rule) -> web.Response:
        await self._admin.topics.sync()
        topic = find_topic(self._admin, request)
        if form.text("seen") != _stamp(topic):
            form.fault(
                "rule",
                Say("Somebody else has changed it meanwhile to: {rule}", rule=topic.retry_if),
            )
            return await self._show(request, topic, form, status=422)
        changed = msgspec.structs.replace(topic, retry_if=rule.text)
        await self._admin.topics.put(changed)
        await self._admin.note(
            request, "topic.put", name, before=readable(topic), after=readable(changed)
        )
        return redirect(request, f"/topics/{name}", Said("The rule is saved and counts from now."))

    async def _show_past(
        self, request: web.Request, topic: Topic, form: Form, rule: Rule
    ) -> web.Response:
        attempts = await self._admin.attempts.last(topic.topic, MOST)
        # A wide rule on a thousand replies takes a while, which nobody else should wait for.
        past = await asyncio.to_thread(back_test, rule, attempts)
        return await self._show(request, topic, form, past=past)

    async def _show(
        self,
        request: web.Request,
        topic: Topic,
        form: Form,
        *,
        tried: Tried | None = None,
        past: BackTest | None = None,
        away: str = "",
        status: int = 200,
    ) -> web.Response:
        return await self._pages.show(
            request,
            "topics/rule.html",
            tab="topics",
            status=status,
            topic=topic,
            form=form,
            seen=_stamp(topic),
            spot=rule_spot(form.raw("rule").rstrip()),
            tried=tried,
            past=past,
            away=away,
            most=MOST,
        )

    async def _newest_reply(self, topic: Topic) -> tuple[str, str]:
        """A sample to begin with: the last reply that came, with its status."""
        try:
            last = await self._admin.attempts.last(topic.topic, 20)
        except DatabaseAway:
            return _SAMPLE, "200"
        found = next((one for one in last if one.status is not None and one.reply), None)
        return (found.reply, str(found.status)) if found is not None else (_SAMPLE, "200")


def _stamp(topic: Topic) -> str:
    return hashlib.sha256(topic.retry_if.encode()).hexdigest()[:16]


def try_rule(topic: Topic, rule: Rule, form: Form) -> Tried | None:
    """The rule on the form's sample; None when the status is none, which stands in the form."""
    text, body = form.text("status"), form.raw("reply").encode(errors="replace")
    if _STATUS.fullmatch(text) is None:
        form.fault("status", Say("must be a number from 100 to 599"))
        return None
    status = int(text)
    parts = [
        Part(test.text, seen.holds, _values(test, seen.left, seen.right))
        for test, seen in rule.explain(status, body)
    ]
    verdict = judge(Answer(status, body), topic, rule)
    return Tried(parts, rule.evaluate(status, body), verdict, _is_json(body))


def _values(test: Comparison, left: object, right: object) -> list[tuple[str, str]]:
    """What each reference of a comparison stood for."""
    sides = [(test.left, left), (test.right, right)] if test.sign else [(test.left, left)]
    return [(_name(side), _as_json(value)) for side, value in sides if side.kind != "fixed"]


def _name(operand: Operand) -> str:
    return "{" + ".".join([operand.kind, *operand.path]) + "}"


def _as_json(value: object) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return "…"
    return text if len(text) <= _MOST_VALUE_CHARS else text[:_MOST_VALUE_CHARS] + "…"


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
