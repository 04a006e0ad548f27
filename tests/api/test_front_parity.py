"""What the front answers and what aiohttp answers are the same bytes, whatever is asked."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dq.api import app
from dq.core.errors import DiskFull, DuplicateJob, NodeAway, NodeFull, Overloaded
from dq.core.topic import Topic
from tests.api.conftest import Served
from tests.api.fronted import TAIL, Fronted, request, statuses

DUE = b'"due":5000000000000'


@pytest.fixture
async def both(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Served, Served]]:
    """The API by its front and by aiohttp alone, each with parts of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "DRAIN_S", 0.1)
    async with AsyncExitStack() as stack:
        pair = (Fronted(), Served())
        for api in pair:
            api.book.topics["off"] = Topic(topic="off", enabled=False)
            await api.start(stack)
        yield pair


async def answers(both: tuple[Served, Served], data: bytes) -> list[bytes]:
    """Of both, without what the time or chance has made."""
    found = []
    for api in both:
        answer = await api.speak(data)
        answer = re.sub(rb"Date: [^\r]+GMT", b"Date: now", answer)
        answer = re.sub(rb'"due":\d{13}', b'"due":0', answer)
        found.append(re.sub(rb'"id":"[0-9A-Z]{26}"', b'"id":"made"', answer))
    return found


def headed(*lines: bytes, body: bytes = b'{"topic":"t","id":"1"}') -> bytes:
    return b"\r\n".join([b"POST /v1/jobs HTTP/1.1", *lines, b"", body])


GOOD = {
    "a push": request(b'{"topic":"t","id":"1",%s}' % DUE),
    "without an id": request(b'{"topic":"t"}'),
    "twice": request() + request(),
    "kept": request(b'{"topic":"t","id":"1",%s}' % DUE) * 2,
    "not ASCII": request('{"topic":"t","id":"é日😀"}'.encode()),
    "escapes": request(b'{"topic":"t","id":"a\\"b\\\\c/","body":"\\u0000"}'),
    "it closes": request(b'{"topic":"t"}', b"Connection: close"),
    "keep-alive is said": request(b'{"topic":"t"}', b"Connection: Keep-Alive"),
    "lower case names": request().replace(b"Content-Type", b"content-type"),
    "spaces around values": headed(
        b"Host:\t localhost \t",
        b"Content-Type:application/json",
        b"Content-Length:  22  ",
        b"Empty:",
    ),
    "a charset": request().replace(b"/json", b"/json; charset=utf-8"),
    "more headers": request(b"{}", *(b"X-Some-%d: \x21~" % n for n in range(60))),
    "a batch": request(b'{"jobs":[{"topic":"t","id":"1"},{},7]}', path=b"/v1/jobs/batch"),
    "an empty batch": request(b'{"jobs":[]}', path=b"/v1/jobs/batch"),
}
BAD = {
    "no JSON": request(b"{"),
    "no body": request(b""),
    "no object": request(b"[]"),
    "no UTF-8": request(b'{"topic":"t","body":"\xff"}'),
    "half a pair": request(b'{"topic":"t","body":"\\ud800"}'),
    "bad fields": request(b'{"topic":"t","dealy":1,"id":""}'),
    "too deep": request(b'{"topic":"t","body":%s1%s}' % (b"[" * 1500, b"]" * 1500)),
    "unknown topic": request(b'{"topic":"nobody"}'),
    "off line": request(b'{"topic":"off"}'),
    "a duplicate": request() + request(b'{"topic":"t","id":"1","on_duplicate":"reject"}'),
    "a body too large": request(json.dumps({"topic": "t", "body": "x" * 2000}).encode()),
    "a request too large": request(b" " * 68_000 + b"{}"),
    "no batch": request(b"{}", path=b"/v1/jobs/batch"),
    "a broken batch": request(b'{"jobs":[{"topic":"t"},]}', path=b"/v1/jobs/batch"),
    "another type": request().replace(b"application/json", b"text/plain"),
    "compressed": request(b"{}", b"Content-Encoding: gzip"),
    "a foreign host": request(host=b"evil.com"),
    "from a page": request(b"{}", b"Origin: http://localhost"),
    "from another site": request(b"{}", b"Sec-Fetch-Site: cross-site"),
}
ELSEWHERE = {
    "another method": TAIL.replace(b"GET /healthz", b"PUT /v1/jobs"),
    "another path": request(path=b"/v1/job"),
    "a slash at the end": request(path=b"/v1/jobs/"),
    "a query": request(path=b"/v1/jobs?x=1"),
    "an absolute target": request(path=b"http://localhost/v1/jobs"),
    "HTTP/1.0": request().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "no host": headed(b"Content-Type: application/json", b"Content-Length: 22"),
    "no length": headed(b"Host: localhost", b"Content-Type: application/json"),
    "not ASCII in a value": request(b"{}", b"X-Name: \xc3\xa9"),
    "a health check": TAIL,
}


@pytest.mark.parametrize("name", [*GOOD, *BAD, *ELSEWHERE])
async def test_both_answer_the_same_bytes(both: tuple[Served, Served], name: str) -> None:
    data = (GOOD | BAD | ELSEWHERE)[name]
    front, plain = await answers(both, data if name == "it closes" else data + TAIL)
    assert front == plain
    assert statuses(front), front
    assert [job.id for job in both[0].schedule.pushed if len(job.id) < 26] == [
        job.id for job in both[1].schedule.pushed if len(job.id) < 26
    ]


@pytest.mark.parametrize("name", [name for name in GOOD if name != "more headers"])
async def test_what_is_plain_is_answered_by_the_front_itself(
    both: tuple[Served, Served], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the table above would compare aiohttp with itself."""
    front = both[0]
    assert isinstance(front, Fronted)
    last = b"" if name == "it closes" else request(b'{"topic":"t"}', b"Connection: close")
    monkeypatch.setattr(front.front, "next_protocol", None)
    found = await front.speak(GOOD[name] + last)
    assert set(statuses(found)) <= {200, 201} and found.count(b"Connection: close") == 1


@pytest.mark.parametrize(
    "failure",
    [
        NodeAway("n1"),
        Overloaded(),
        DiskFull(),
        NodeFull(),
        DuplicateJob("t", "1"),
        RuntimeError("password=hunter2"),
    ],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize(
    "data", [request(), request(b'{"jobs":[{"topic":"t","id":"1"}]}', path=b"/v1/jobs/batch")]
)
async def test_failures_are_told_alike(
    both: tuple[Served, Served], failure: Exception, data: bytes
) -> None:
    for api in both:
        api.schedule.failure = failure
    front, plain = await answers(both, data + TAIL)
    assert front == plain and b"hunter2" not in front


@pytest.mark.parametrize(
    ("header", "status"),
    [(b"Bearer first", 201), (b"bearer  first", 201), (b"Bearer nope", 401), (b"first", 401)],
)
async def test_tokens_open_alike(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, header: bytes, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "DRAIN_S", 0.1)
    async with AsyncExitStack() as stack:
        both = (Fronted(DQ_API_TOKENS="first"), Served(DQ_API_TOKENS="first"))
        for api in both:
            await api.start(stack)
        data = request(b'{"topic":"t","id":"1"}', b"Authorization: " + header, host=b"dq.example")
        front, plain = await answers(both, data + TAIL)
        assert front == plain and statuses(front)[0] == status
