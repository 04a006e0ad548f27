"""A topic as a form: fields of text, and back.

The fields become the very document that the API takes, and `parse_topic` reads it; so what is
checked while somebody types, what is saved here and what a program puts can't differ. A secret is
never put into a field: an empty one leaves it as it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from decimal import Decimal
from typing import Any, NamedTuple

from dq.core.backoff import parse_backoff
from dq.core.errors import Invalid
from dq.core.rule import RuleError, parse_rule
from dq.core.signing import PREFIX
from dq.core.topic import HIDDEN_SECRET, Topic, parse_topic, topic_to_doc
from dq.db.repository import encode_topic
from dq.web.forms import Form
from dq.web.texts import Say, Words

SHOWN_RETRIES = 6
_TEXTS = ("name", "creator", "method", "format", "priority", "backoff")
_NUMBERS = ("delay", "timeout", "max_retries", "keep_done", "keep_dead")
_LIMITS = ("concurrency", "rate")
_TICKS = ("empty_is_failure", "enabled", "paused")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_GUARDED = re.compile(r"auth|cookie|token|key|secret|password|signature", re.IGNORECASE)


class Spot(NamedTuple):
    """Where in a rule the first mistake is: the text before it, the place, the text behind it."""

    before: str
    at: str
    after: str


def to_fields(topic: Topic) -> dict[str, str]:
    """What the form shows of a topic; never its secret."""
    fields = {name: str(getattr(topic, name)) for name in _TEXTS}
    fields |= {name: number_text(getattr(topic, name)) for name in (*_NUMBERS, *_LIMITS)}
    fields |= {name: "1" for name in _TICKS if getattr(topic, name)}
    fields["topic"] = topic.topic
    fields["callback"] = topic.callback or ""
    fields["retry_if"] = topic.retry_if
    fields["headers"] = "\n".join(f"{name}: {value}" for name, value in topic.headers.items())
    fields["email"] = "\n".join(topic.email)
    fields["seen"] = stamp_of(topic)
    return fields


def number_text(number: float | None) -> str:
    """As a person writes it; "" for none."""
    if number is None:
        return ""
    return format(Decimal(repr(number)), "f") if number % 1 else str(int(number))


def stamp_of(topic: Topic) -> str:
    """Tells this state of a topic from any other one."""
    return hashlib.sha256(encode_topic(topic).encode()).hexdigest()[:32]


def new_secret(previous: Topic | None = None) -> tuple[str, str]:
    """A secret made now, and the topic's secrets with it: those of `previous` go on signing
    beside it, the newest first."""
    made = PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    old = previous.secret.split() if previous is not None and previous.secret else []
    return made, " ".join([made, *old[:7]])


def read_topic(
    form: Form, name: str, default_max_retries: int, previous: Topic | None, secret: str = ""
) -> Topic | None:
    """The topic that the form means; None when there are faults, which stand in the form then.

    `secret` takes the place of what the form says of it; `previous`: the topic as registered.
    """
    doc = _document(form)
    doc["secret"] = secret or _secret(form, previous)
    try:
        topic = parse_topic(name, json.dumps(doc).encode(), default_max_retries, previous)
    except Invalid as error:
        for fault in error.errors:
            form.fault(fault.field, fault.message)
        return None
    return None if form.faults else topic


def rule_spot(text: str) -> Spot | None:
    """Where the rule goes wrong; None when it doesn't."""
    try:
        parse_rule(text)
    except RuleError as error:
        at = error.position - 1
        return Spot(text[:at], text[at : at + 1], text[at + 1 :])
    return None


def backoff_words(words: Words, text: str, max_retries: int, unit_s: float) -> str:
    """When the retries come, in words; "" for a backoff that is none."""
    try:
        backoff = parse_backoff(text)
    except ValueError:
        return ""
    if max_retries <= 0:
        return words.t("No retry: a job is dead after its first failure.")
    delays_s = [backoff.delay_s(n, unit_s) for n in range(max_retries)]
    shown = words.t(", ").join(span_words(words, one) for one in delays_s[:SHOWN_RETRIES])
    if max_retries > SHOWN_RETRIES:
        shown += " …"
    return words.t(
        "Retries after {times}; dead after {span} in all.",
        times=shown,
        span=span_words(words, sum(delays_s)),
    )


def span_words(words: Words, seconds: float) -> str:
    """A length of time that may have a part of a second."""
    if seconds >= 60 or not seconds % 1:
        return words.span(seconds)
    return words.t("{n} s", n=f"{seconds:.3g}") if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def readable(topic: Topic | None) -> str | None:
    """For the log of changes: the document without secrets, also those that headers carry."""
    if topic is None:
        return None
    doc = topic_to_doc(topic)
    doc["headers"] = {name: guarded(name, value) for name, value in topic.headers.items()}
    return json.dumps(doc, ensure_ascii=False)


def guarded(name: str, value: str) -> str:
    """A header's value, hidden where its name says that it opens something."""
    return HIDDEN_SECRET if _GUARDED.search(name) else value


def _document(form: Form) -> dict[str, Any]:
    doc: dict[str, Any] = {name: form.text(name) for name in _TEXTS if form.text(name)}
    doc |= {name: _number(form.text(name)) for name in _NUMBERS if form.text(name)}
    doc |= {name: _number(form.text(name)) if form.text(name) else None for name in _LIMITS}
    doc |= {name: form.is_ticked(name) for name in _TICKS}
    doc["callback"] = form.text("callback") or None
    doc["retry_if"] = form.raw("retry_if").rstrip()
    doc["email"] = [line.strip() for line in form.raw("email").splitlines() if line.strip()]
    doc["headers"] = _headers(form)
    return doc


def _secret(form: Form, previous: Topic | None) -> str | None:
    if form.text("secret"):
        return form.text("secret")
    has_one = previous is not None and previous.secret is not None
    return HIDDEN_SECRET if has_one and not form.is_ticked("no_secret") else None


def _headers(form: Form) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(form.raw("headers").splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon:
            form.fault("headers", Say("line {n} must look like Name: value", n=number))
        elif name.strip() in headers:
            form.fault("headers", Say("line {n} gives a header a second time", n=number))
        headers[name.strip()] = value.strip()
    return headers


def _number(text: str) -> int | float | str:
    """What is no number stays text, for parse_topic to say what would be right."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    return float(text) if match[1] else int(text)
