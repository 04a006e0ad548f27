"""What the plain callbacks of one topic have in common, put together once.

The ordinary way (dq/core/callback.py, dq/delivery/plain.py) writes the request of a job that is all
marks; what it wrote is the template, and the marks are the places for what differs from job to job.
So both ways write the same bytes. A topic for which the marks don't come out one by one in their
places (a form, GET, TLS, a header that holds the same digits) has no template.
"""

from __future__ import annotations

from typing import NamedTuple

from dq import __version__
from dq.core.callback import CallbackJob, build_request, header_safe
from dq.core.signing import parse_secrets, sign
from dq.core.topic import Topic
from dq.delivery.plain import MAX_BODY, Target, request_bytes, target_of
from dq.queue.records import StoredJob

_ID, _MESSAGE = "dq-mark-5b1e90c7d6f24a83", "dq-mark-c2a8417f60e35d9b"
_ATTEMPT, _DUE, _NOW_S = 80271355194280, 61938472050167, 49305718826402
_NO_LENGTH = b"Content-Length: 0\r\n\r\n"


class PlainRequest(NamedTuple):
    """A request ready for the wire."""

    url: str
    target: Target
    data: bytes
    timeout_s: float


class Template:
    """The requests of one topic."""

    __slots__ = ("_form", "_keys", "_target", "_url", "topic")

    def __init__(self, topic: Topic, url: str, target: Target, form: bytes) -> None:
        self.topic = topic
        self._url = url
        self._target = target
        self._form = form
        self._keys = None if topic.secret is None else parse_secrets(topic.secret)

    def fill(self, job: StoredJob, timeout_s: float, now_ms: int) -> PlainRequest | None:
        """The request of one job; None when it is too long to go out plain."""
        body = job.body
        if len(body) > MAX_BODY:
            return None
        values: tuple[object, ...] = (header_safe(job.id).encode(), job.retries + 1, job.due_ms)
        if self._keys is not None:
            message, now_s = job.version.key.hex(), now_ms // 1000
            signature = sign(self._keys, message, now_s, body).encode()
            values = (*values, message.encode(), now_s, signature)
        data = self._form % (*values, len(body)) + body
        return PlainRequest(self._url, self._target, data, timeout_s)


def make_template(topic: Topic) -> Template | None:
    """None for a topic whose callbacks are written one by one."""
    if topic.callback is None or topic.method != "POST" or topic.format != "json":
        return None
    job = CallbackJob(topic.topic, _ID, b"", _DUE, 0, _ATTEMPT, 0.0, _MESSAGE)
    request = build_request(topic, job, _NOW_S * 1000, __version__)
    target = target_of(request)
    if target is None:
        return None
    try:
        head = request_bytes(request, target)
    except ValueError:
        return None
    if not head.endswith(_NO_LENGTH):
        return None
    marks = [(_ID, b"%b"), (str(_ATTEMPT), b"%d"), (str(_DUE), b"%d")]
    if topic.secret is not None:
        signature = dict(request.headers)["webhook-signature"]
        marks += [(_MESSAGE, b"%b"), (str(_NOW_S), b"%d"), (signature, b"%b")]
    form = _replace(head.removesuffix(_NO_LENGTH), marks)
    return None if form is None else Template(topic, request.url, target, form)


def _replace(head: bytes, marks: list[tuple[str, bytes]]) -> bytes | None:
    """A format of bytes; None when a mark isn't there exactly once, after the one before it."""
    pieces: list[bytes] = []
    for mark, place in marks:
        before, found, head = head.partition(mark.encode())
        if not found or mark.encode() in head:
            return None
        pieces += [before.replace(b"%", b"%%"), place]
    return b"".join([*pieces, head.replace(b"%", b"%%"), b"Content-Length: %d\r\n\r\n"])
