"""The HTTP request of one callback, built from a topic and a job.

In `json` a body leaves byte for byte as it was pushed. In `form` and GET its members become
fields as php-delayqueue's receivers know them. Nothing a job or topic holds can break out of
its place: names, ids and values are encoded for where they go. Never raises for a job's body.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

import msgspec

from dq.core.clock import local_text
from dq.core.signing import parse_secrets, sign
from dq.core.topic import Topic

# What RFC 3986 lets stand in a URL; the rest is %-encoded.
_NOT_URL = re.compile(r"[^A-Za-z0-9!#$%&'()*+,./:;=?@\[\]_~-]")
_HEADER_PLAIN = re.compile(r"[!-$&-~]*")
_ESCAPE_LIKE = re.compile(r"%(?=[0-9A-Fa-f]{2})")


class CallbackJob(msgspec.Struct, frozen=True):
    """What a callback needs to know of its job.

    `attempt` counts from 1. `message_id` names this version of the job, the same at every
    attempt and never again for another push: receivers drop repeats by it.
    """

    topic: str
    id: str
    body: bytes
    due_ms: int
    created_ms: int
    attempt: int
    timeout_s: float
    message_id: str


class CallbackRequest(msgspec.Struct, frozen=True):
    """One request, ready to be sent: `url` is encoded, `body` is None for GET."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes | None
    timeout_s: float


def build_request(topic: Topic, job: CallbackJob, now_ms: int, version: str) -> CallbackRequest:
    """The request for one callback of `job` at `now_ms` (for the signature's timestamp).

    `version` is dq's, for User-Agent. Raises ValueError for a pull topic, which has no callback.
    """
    if topic.callback is None:
        raise ValueError(f"topic {topic.topic!r} has no callback")
    url, content_type, body = _place_body(topic, job)
    pairs = [
        ("User-Agent", f"dq/{version}"),
        ("DQ-Topic", job.topic),
        ("DQ-Id", header_safe(job.id)),
        ("DQ-Attempt", str(job.attempt)),
        ("DQ-Due", str(job.due_ms)),
    ]
    if content_type is not None:
        pairs.append(("Content-Type", content_type))
    if topic.headers:
        overridden = {name.lower() for name in topic.headers}
        pairs = [pair for pair in pairs if pair[0].lower() not in overridden]
        pairs += topic.headers.items()
    if topic.secret is not None:
        pairs += _signature_headers(topic.secret, job.message_id, now_ms, body or b"")
    return CallbackRequest(topic.method, url, pairs, body, job.timeout_s)


def form_fields(job: CallbackJob) -> list[tuple[str, str]]:
    """A job's body as fields, and php-delayqueue's own fields after them.

    Numbers are as they were written, nested values JSON text, null and false empty, true "1".
    A body that is no object makes one field, `body`. A member that carries the name of one of
    dq's fields gives way to it.
    """
    fields = _members(job.body)
    fields["notify_time"] = local_text(job.due_ms)
    fields["dq_set_time"] = local_text(job.created_ms)
    if job.attempt > 1:
        fields["exp_notify_nums"] = str(job.attempt - 1)
    return list(fields.items())


def header_safe(text: str) -> str:
    """Text that fits a header: what isn't printable ASCII is %-encoded UTF-8.

    Decoding %XX gives the text back: a percent sign is encoded where it would read as an escape.
    """
    if _HEADER_PLAIN.fullmatch(text):
        return text
    escaped = _ESCAPE_LIKE.sub("%25", text)
    return "".join(c if "!" <= c <= "~" else quote(c, safe="", errors="replace") for c in escaped)


def _place_body(topic: Topic, job: CallbackJob) -> tuple[str, str | None, bytes | None]:
    """The URL, content type and body: GET carries the members in the query, POST in the body."""
    parts, url = _encode_url(topic.callback or "")
    if topic.method == "GET":
        query = "&".join(text for text in (parts.query, _encode_form(job)) if text)
        return urlunsplit(parts._replace(query=query)), None, None
    if topic.format == "form":
        return url, "application/x-www-form-urlencoded", _encode_form(job).encode()
    return url, "application/json", job.body


@lru_cache(maxsize=4096)
def _encode_url(url: str) -> tuple[SplitResult, str]:
    """A topic's URL in ASCII, its own escapes untouched, without the fragment."""
    parts = urlsplit(url)
    netloc = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode()
    path, query = (_NOT_URL.sub(lambda m: _quote(m[0]), text) for text in parts[2:4])
    encoded = SplitResult(parts.scheme, netloc, path, query, "")
    return encoded, urlunsplit(encoded)


def _encode_form(job: CallbackJob) -> str:
    return "&".join(f"{_quote(name)}={_quote(value)}" for name, value in form_fields(job))


def _quote(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _members(body: bytes) -> dict[str, str]:
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"body": body.decode("utf-8", "replace")}
    return {name: _field_text(bytes(raw)) for name, raw in members.items()}


def _field_text(raw: bytes) -> str:
    """One member from its JSON text, which for a number or nested value is the field itself."""
    if raw in (b"null", b"false"):
        return ""
    if raw == b"true":
        return "1"
    if raw.startswith(b'"'):
        try:
            return msgspec.json.decode(raw, type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw.decode("utf-8", "replace")
    return raw.decode("utf-8", "replace")


def _signature_headers(
    secret: str, message_id: str, now_ms: int, body: bytes
) -> list[tuple[str, str]]:
    safe_id = header_safe(message_id)
    timestamp_s = now_ms // 1000
    return [
        ("webhook-id", safe_id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", sign(parse_secrets(secret), safe_id, timestamp_s, body)),
    ]
