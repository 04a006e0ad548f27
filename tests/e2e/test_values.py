"""What is pushed is what arrives, or it is refused with a reason: bodies, ids, and who may ask."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import string
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest

from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.mariadb import MariaDB, start_mariadb
from tests.support import wait_until

MIB = 1 << 20
ALIKE = ["x", "X", "é", "e", "e\u0301"]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def dq(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Program]:
    with Program(tmp_path_factory.mktemp("values"), DQ_RETRY_UNIT="0.05") as dq:
        dq.topic("t", callback=receiver.url)
        yield dq


def delivered(receiver: Receiver, id_: str) -> bytes:
    calls = wait_until(lambda: [call for call in receiver.calls if call.id == id_], 10, id_)
    return calls[-1].body


@pytest.mark.parametrize(
    "raw",
    [
        b'"' + b"x" * (MIB - 2) + b'"',
        b"[" * 900 + b"]" * 900,
        b'"a\\u0000b"',
        b'{"n": 1.0, "big": 123456789012345678901234567890, "e": 1E400}',
        '"\U0001f600 \u202e \u2028"'.encode(),
        b"null",
    ],
    ids=["1 MiB", "deep", "NUL", "numbers", "text", "null"],
)
def test_a_body_arrives_byte_for_byte(dq: Program, receiver: Receiver, raw: bytes) -> None:
    id_ = hashlib.sha1(raw).hexdigest()
    text = b'{"topic":"t","id":"%s","body":%s}' % (id_.encode(), raw)
    assert dq.call("POST", "/v1/jobs", raw=text).status == 201
    assert delivered(receiver, id_) == raw


@pytest.mark.parametrize(
    ("raw", "status", "word"),
    [
        (b'{"topic":"t","body":"' + b"x" * MIB + b'"}', 413, "1048576"),
        (b'{"topic":"t","body":"\\ud800"}', 422, "surrogate"),
        (b'{"topic":"t","body":' + b"[" * 50_000 + b"]" * 50_000 + b"}", 422, "nested"),
        (b'{"topic":"t","body":NaN}', 400, "JSON"),
        (b'{"topic":"t","body":"\xff"}', 400, "UTF-8"),
        (b'{"topic":"t","dealy":5}', 422, "did you mean `delay`?"),
        (b'{"topic":"t","id":"a b"}', 422, "printable"),
        (b'{"topic":"t","id":"a\\u0000"}', 422, "printable"),
        (b'{"topic":"nobody"}', 404, "nobody"),
    ],
)
def test_what_cannot_be_delivered_is_refused_with_a_reason(
    dq: Program, receiver: Receiver, raw: bytes, status: int, word: str
) -> None:
    before = len(receiver.calls)
    reply = dq.call("POST", "/v1/jobs", raw=raw)
    assert reply.status == status
    assert reply.headers["content-type"].startswith("application/problem+json")
    assert word in reply.raw.decode()
    assert dq.push("t", f"after-{len(raw)}-{status}").status in (200, 201)
    wait_until(lambda: len(receiver.calls) > before)
    assert len(receiver.calls) == before + 1


def test_ids_of_every_printable_character_come_and_go(dq: Program, receiver: Receiver) -> None:
    every = "".join(c for c in string.printable if c.isprintable() and c != " ")
    for id_ in (every, "..", "%2F", "a/b", "订单42", "\U0001f600" * 64, "e" * 256):
        assert dq.push("t", id_, {"id": id_}, delay=0).status == 201, id_
        assert json.loads(delivered(receiver, id_)) == {"id": id_}
        place = f"/v1/jobs/t/{quote(id_, safe='')}"
        wait_until(lambda place=place: dq.call("GET", place).json["state"] == "done")
        assert dq.push("t", id_, delay=60).status == 201
        assert dq.call("DELETE", place).json == {"result": "cancelled"}


def test_form_and_get_carry_what_php_receivers_expect(dq: Program, receiver: Receiver) -> None:
    answers = iter([(500, b"no"), (200, b"ok"), (200, b"ok")])
    receiver.answer = lambda call: next(answers)
    try:
        dq.topic("form", callback=receiver.url + "/f?fixed=1", format="form")
        dq.push("form", "f1", {"x": 1, "s": "a b+c", "n": None, "l": [1, {"a": "中"}]})
        wait_until(lambda: receiver.ids()["f1"] == 2, 10)
        first, second = (call for call in receiver.calls if call.id == "f1")
        fields = parse_qs(first.body.decode(), keep_blank_values=True)
        assert (fields["x"], fields["s"], fields["n"]) == (["1"], ["a b+c"], [""])
        assert json.loads(fields["l"][0]) == [1, {"a": "中"}]
        assert len(fields["notify_time"][0]) == len(fields["dq_set_time"][0]) == 19
        assert "exp_notify_nums" not in fields
        assert parse_qs(second.body.decode())["exp_notify_nums"] == ["1"]
        assert first.path == "/f?fixed=1"
        dq.topic("get", callback=receiver.url + "/g?fixed=1", method="GET")
        dq.push("get", "g1", {"x": "1 2"})
        wait_until(lambda: receiver.ids()["g1"] == 1, 10)
        call = next(call for call in receiver.calls if call.id == "g1")
        assert call.path.startswith("/g?fixed=1&x=1%202&notify_time=")
    finally:
        receiver.answer = lambda call: (200, b"ok")


def test_a_secret_signs_each_attempt_under_one_id(dq: Program, receiver: Receiver) -> None:
    key = bytes(range(32))
    secret = "whsec_" + base64.b64encode(key).decode()
    answers = iter([(500, b"no"), (200, b"ok")])
    receiver.answer = lambda call: next(answers)
    try:
        dq.topic("signed", callback=receiver.url, secret=secret)
        dq.push("signed", "s1", {"a": 1})
        wait_until(lambda: receiver.ids()["s1"] == 2, 10)
    finally:
        receiver.answer = lambda call: (200, b"ok")
    calls = [call for call in receiver.calls if call.id == "s1"]
    assert len({call.headers["webhook-id"] for call in calls}) == 1
    for call in calls:
        head = f"{call.headers['webhook-id']}.{call.headers['webhook-timestamp']}.".encode()
        digest = hmac.new(key, head + call.body, hashlib.sha256).digest()
        expected = "v1," + base64.b64encode(digest).decode()
        assert call.headers["webhook-signature"] == expected


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.com"}, {"Origin": "https://evil.com"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_a_web_page_cannot_push(dq: Program, headers: dict[str, str]) -> None:
    reply = dq.call("POST", "/v1/jobs", raw=b'{"topic":"t"}', headers=headers)
    assert reply.status == 403
    text = dq.call("POST", "/v1/jobs", raw=b'{"topic":"t"}', headers={"Content-Type": "text/plain"})
    assert text.status == 415


def test_headers_that_frame_a_request_are_refused_by_name(dq: Program) -> None:
    for name in ("Host", "Content-Length", "transfer-encoding", "Connection", "DQ-Id"):
        doc = {"callback": "http://127.0.0.1/", "headers": {name: "1"}}
        reply = dq.call("PUT", "/v1/topics/bad", doc)
        assert reply.status == 422
        assert reply.json["errors"][0]["field"].startswith("headers")
        assert name in reply.json["errors"][0]["message"]


def test_a_token_is_wanted_where_one_is_set(tmp_path: Path) -> None:
    with Program(tmp_path, DQ_API_TOKENS="one,two") as dq:
        for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": "two"}):
            assert dq.call("GET", "/v1/topics", headers=headers).status == 401
        good = dq.call("GET", "/v1/topics", headers={"Authorization": "Bearer two"})
        assert good.status == 200
    open_to_all = Program(tmp_path, DQ_API_HOST="0.0.0.0")
    with pytest.raises(AssertionError, match="DQ_API_TOKENS"):
        open_to_all.start()


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    server = start_mariadb()
    yield server
    server.stop()


@pytest.mark.time_limit(90)
@pytest.mark.parametrize("database", ["SQLite", "MariaDB"])
def test_ids_that_look_alike_are_different_jobs(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    environ = {}
    if database == "MariaDB":
        environ["DQ_DATABASE_URL"] = request.getfixturevalue("mariadb").fresh_url()
    with Receiver() as receiver, Program(tmp_path, **environ) as dq:
        dq.topic("t", callback=receiver.url)
        for id_ in ALIKE:
            assert dq.push("t", id_, id_).json["result"] == "created"
        wait_until(lambda: receiver.ids() == dict.fromkeys(ALIKE, 1), 10)
        for id_ in ALIKE:
            job = wait_until(lambda id_=id_: finished(dq, id_), 10)
            assert (job["id"], job["body"]) == (id_, id_)
            assert len(job["history"]) == 2


def finished(dq: Program, id_: str) -> dict[str, object] | None:
    reply = dq.call("GET", f"/v1/jobs/t/{quote(id_)}")
    job: dict[str, object] = reply.json
    return job if reply.status == 200 and job["state"] == "done" else None
