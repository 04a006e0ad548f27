"""A topic: where its jobs are called back and how they are retried.

`parse_topic` is the only door for a document that a person or a program wrote: every field is
checked by `topic_fields`, all mistakes are reported at once, and whatever comes in, nothing but
`Invalid` comes out. A Topic is a plain frozen value; changing one means putting a new one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from dq.core import topic_fields as fields
from dq.core.errors import FieldError, Invalid

HIDDEN_SECRET: Final = "***"
"""Stands for a secret that is set: in an answer it hides it, in a document it keeps it."""

DEFAULT_KEEP_DONE: Final = 7.0
DEFAULT_KEEP_DEAD: Final = 30.0
"""Days that finished jobs are remembered."""

DOTS: Final = (".", "..")
"""No topic has one of these names: what calls an address takes such parts out of its path."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
_MAX_UNKNOWN_NAMED = 20


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One registered topic. Spans are seconds, but `keep_done` and `keep_dead` are days, 0 for
    ever; `callback` None makes it a pull topic."""

    topic: str
    name: str = ""
    callback: str | None = None
    method: Literal["POST", "GET"] = "POST"
    format: Literal["json", "form"] = "json"
    headers: dict[str, str] = {}
    delay: float = 0.0
    timeout: float = 3.0
    priority: Literal["high", "normal", "low"] = "normal"
    email: list[str] = []
    creator: str = ""
    retry_if: str = ""
    empty_is_failure: bool = True
    max_retries: int = 10
    backoff: str = "2n+1"
    concurrency: int | None = None
    rate: float | None = None
    secret: str | None = None
    enabled: bool = True
    paused: bool = False
    keep_done: float = DEFAULT_KEEP_DONE
    keep_dead: float = DEFAULT_KEEP_DEAD


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": fields.check_label,
    "callback": fields.check_callback,
    "method": fields.check_method,
    "format": fields.check_format,
    "headers": fields.check_headers,
    "delay": fields.check_delay,
    "timeout": fields.check_timeout,
    "priority": fields.check_priority,
    "email": fields.check_email,
    "creator": fields.check_label,
    "retry_if": fields.check_retry_if,
    "empty_is_failure": fields.check_flag,
    "max_retries": fields.check_max_retries,
    "backoff": fields.check_backoff,
    "concurrency": fields.check_concurrency,
    "rate": fields.check_rate,
    "secret": fields.check_secret,
    "enabled": fields.check_flag,
    "paused": fields.check_flag,
    "keep_done": fields.check_keep,
    "keep_dead": fields.check_keep,
}


def is_topic_name(name: str) -> bool:
    """True for 1 to 128 of A-Z a-z 0-9 _ . -, but not for one of DOTS."""
    return name not in DOTS and _NAME.fullmatch(name) is not None


def fault_of_topic_name(name: str) -> str:
    """Why `is_topic_name` refuses it, and what to do."""
    if name not in DOTS:
        return "must be 1 to 128 of A-Z a-z 0-9 _ . -"
    return (
        f"can't be {name!r}, which browsers and HTTP clients take out of addresses; "
        "take another name"
    )


def parse_topic(
    topic_name: str, doc: bytes, default_max_retries: int, previous: Topic | None = None
) -> Topic:
    """The topic that `doc`, a JSON object in UTF-8, describes.

    `default_max_retries` counts where the document names none. `previous` is the topic as it
    is registered now, if it is: a `secret` of "***" keeps its secret. The document may repeat
    the name as `topic`, so that what was got can be put back. Raises Invalid, naming each bad
    field.
    """
    errors: list[FieldError] = []
    if not is_topic_name(topic_name):
        errors.append(FieldError("topic", fault_of_topic_name(topic_name)))
    members = _decode_object(doc)
    if members.pop("topic", topic_name) != topic_name:
        errors.append(FieldError("topic", "must be left out, or be the name in the address"))
    errors += _unknown_fields(members)
    values: dict[str, Any] = {"max_retries": default_max_retries}
    for field, check in _CHECKS.items():
        if field not in members:
            continue
        try:
            if field == "secret" and members[field] == HIDDEN_SECRET:
                values[field] = _kept_secret(previous)
            else:
                values[field] = check(members[field])
        except ValueError as error:
            errors.append(FieldError(field, str(error)))
    if errors:
        raise Invalid(errors)
    return Topic(topic=topic_name, **values)


def topic_to_doc(topic: Topic, show_secret: bool = False) -> dict[str, Any]:
    """Every field of a topic as JSON knows them; the secret as "***" unless asked for."""
    doc: dict[str, Any] = msgspec.structs.asdict(topic)
    doc["headers"] = dict(topic.headers)
    doc["email"] = list(topic.email)
    if topic.secret is not None and not show_secret:
        doc["secret"] = HIDDEN_SECRET
    return doc


def _decode_object(doc: bytes) -> dict[str, Any]:
    try:
        members = msgspec.json.decode(doc)
    except RecursionError:
        raise _invalid_document("the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise _invalid_document("the document is no valid UTF-8") from None
    except msgspec.DecodeError as error:
        raise _invalid_document(f"the document is no valid JSON: {error}") from None
    if not isinstance(members, dict):
        raise _invalid_document('must be a JSON object, e.g. {"callback": "http://host/path"}')
    return members


def _invalid_document(message: str) -> Invalid:
    return Invalid([FieldError("", message)])


def _unknown_fields(members: dict[str, Any]) -> list[FieldError]:
    """An error a name; a hostile document with very many is cut short."""
    unknown = [name for name in members if name not in _CHECKS]
    errors = [_unknown_field(name[:64]) for name in unknown[:_MAX_UNKNOWN_NAMED]]
    if len(unknown) > _MAX_UNKNOWN_NAMED:
        rest = len(unknown) - _MAX_UNKNOWN_NAMED
        errors.append(FieldError("", f"{rest} more unknown fields"))
    return errors


def _unknown_field(name: str) -> FieldError:
    close = difflib.get_close_matches(name.lower(), _CHECKS, n=1)
    if close:
        return FieldError(name, f"unknown field; did you mean {close[0]!r}?")
    return FieldError(name, f"unknown field; a topic has {', '.join(_CHECKS)}")


def _kept_secret(previous: Topic | None) -> str:
    if previous is None or previous.secret is None:
        raise ValueError('"***" keeps the secret as it was, but there is none; give one or null')
    return previous.secret
