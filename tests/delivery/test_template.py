"""What a template fills in is, byte for byte, what the ordinary way writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq import __version__
from dq.core.callback import CallbackJob, build_request
from dq.core.topic import Topic
from dq.delivery.plain import MAX_BODY, request_bytes, target_of
from dq.delivery.template import make_template
from dq.queue.records import StoredJob, Version

NOW_MS = 1_700_000_601_999
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a query": {"callback": "http://[::1]:81/a%20b?x=%d&y=%(z)s"},
    "headers": {"headers": {"X-A": "100 %d %", "user-agent": "me", "Accept": "text/plain"}},
    "a secret": {"secret": SECRET},
    "two secrets and headers": {"secret": f"{SECRET} {SECRET}", "headers": {"X": "caf\u00e9"}},
}


def make_job(id_: str = "42", body: bytes = b"{}", retries: int = 0) -> StoredJob:
    version = Version(1_700_000_000_000_000, b"\x00\xff%d\r\n12", 7)
    return StoredJob(version, NOW_MS - 5, retries, 1, 0, "t", id_, "", body)


def written_ordinarily(topic: Topic, job: StoredJob) -> bytes:
    call = CallbackJob(
        topic=job.topic,
        id=job.id,
        body=job.body,
        due_ms=job.due_ms,
        created_ms=job.created_ms,
        attempt=job.retries + 1,
        timeout_s=1.0,
        message_id=job.version.key.hex(),
    )
    request = build_request(topic, call, NOW_MS, __version__)
    target = target_of(request)
    assert target is not None
    return request_bytes(request, target)


@pytest.mark.parametrize("fields", TOPICS.values(), ids=TOPICS)
@given(id_=st.text(min_size=1), body=st.binary(max_size=50), retries=st.integers(0, 99))
def test_it_writes_what_the_ordinary_way_writes(
    fields: dict[str, Any], id_: str, body: bytes, retries: int
) -> None:
    topic = Topic(topic="t", **{"callback": "http://host:81/path", **fields})
    template, job = make_template(topic), make_job(id_, body, retries)
    assert template is not None
    filled = template.fill(job, 1.5, NOW_MS)
    assert filled is not None
    assert filled.data == written_ordinarily(topic, job)
    assert (filled.url, filled.timeout_s) == (topic.callback, 1.5)


@pytest.mark.parametrize(
    "fields",
    [
        {"callback": None},
        {"method": "GET"},
        {"format": "form"},
        {"callback": "https://host/"},
        {"headers": {"X": "80271355194280"}},
        {"headers": {"X": "61938472050167"}},
        {"headers": {"X": "a\r\nb"}},
    ],
)
def test_a_topic_that_does_not_fit_has_none(fields: dict[str, Any]) -> None:
    assert make_template(Topic(topic="t", **{"callback": "http://host/", **fields})) is None


def test_a_long_body_is_left_to_the_ordinary_way() -> None:
    template = make_template(Topic(topic="t", callback="http://host/"))
    assert template is not None
    assert template.fill(make_job(body=b"x" * MAX_BODY), 1.0, NOW_MS) is not None
    assert template.fill(make_job(body=b"x" * (MAX_BODY + 1)), 1.0, NOW_MS) is None
