"""A topic's document: everything wrong is told at once, and nothing but Invalid comes out."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.errors import Invalid
from dq.core.topic import HIDDEN_SECRET, Topic, is_topic_name, parse_topic, topic_to_doc

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def parse(doc: dict[str, Any], previous: Topic | None = None) -> Topic:
    return parse_topic("order_close", msgspec.json.encode(doc), 10, previous)


def errors_of(doc: bytes, name: str = "order_close") -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        parse_topic(name, doc, 10)
    return {error.field: error.message for error in caught.value.errors}


def message_for(field: str, value: Any) -> str:
    errors = errors_of(msgspec.json.encode({field: value}))
    assert list(errors) == [field]
    return errors[field]


def test_an_empty_document_is_a_pull_topic_with_defaults() -> None:
    topic = parse_topic("t", b"{}", 7)
    assert topic == Topic(topic="t", max_retries=7)
    assert (topic.callback, topic.timeout, topic.backoff) == (None, 3.0, "2n+1")


def test_a_full_document_is_taken_as_it_is() -> None:
    doc = {
        "name": "关闭未付订单",
        "callback": "http://host/path?x=1",
        "method": "GET",
        "format": "form",
        "headers": {"Authorization": "Bearer x", "X-Text": "a\tb"},
        "delay": 600,
        "timeout": 0.5,
        "priority": "high",
        "email": ["ops@example.com", "root@localhost"],
        "creator": "lin",
        "retry_if": "{res.code}!=200",
        "empty_is_failure": False,
        "max_retries": 0,
        "backoff": "10s,1m",
        "concurrency": 5,
        "rate": 2,
        "secret": SECRET,
        "enabled": False,
        "paused": True,
        "keep_done": 0.5,
        "keep_dead": 0,
    }
    topic = parse(doc)
    assert topic_to_doc(topic, show_secret=True) == {"topic": "order_close", **doc}
    assert type(topic.delay) is float and type(topic.rate) is float


def test_what_was_got_can_be_put_back() -> None:
    topic = parse({"callback": "https://host", "secret": SECRET})
    doc = topic_to_doc(topic)
    assert doc["secret"] == HIDDEN_SECRET and doc["topic"] == "order_close"
    assert parse(doc, previous=topic) == topic


def test_a_hidden_secret_needs_one_to_keep() -> None:
    assert "there is none" in message_for("secret", HIDDEN_SECRET)


def test_every_mistake_is_told_at_once() -> None:
    errors = errors_of(b'{"delay": -1, "callbck": "x", "timeout": "3", "topic": "other"}', "a b")
    assert set(errors) == {"topic", "delay", "callbck", "timeout"}
    assert "did you mean 'callback'?" in errors["callbck"]


def test_an_unknown_field_like_no_other_lists_what_there_is() -> None:
    assert "a topic has name, callback" in message_for("zzzz", 1)


@pytest.mark.parametrize("name", ["a", "...", "A-z_0.9", "x" * 128])
def test_topic_names(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 129, "a b", "a/b", "主题", "a\n", "a:b"])
def test_no_topic_names(name: str) -> None:
    assert not is_topic_name(name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delay", True),
        ("delay", -0.001),
        ("delay", 10**400),
        ("delay", 11 * 366 * 86400),
        ("delay", None),
        ("timeout", 0.05),
        ("timeout", 601),
        ("max_retries", True),
        ("max_retries", 1.5),
        ("max_retries", 1001),
        ("max_retries", -1),
        ("concurrency", 0),
        ("concurrency", True),
        ("rate", 0),
        ("rate", -1),
        ("priority", "urgent"),
        ("priority", ["high"]),
        ("method", "PUT"),
        ("format", {}),
        ("enabled", 1),
        ("paused", "yes"),
        ("keep_done", -1),
        ("keep_done", "7"),
        ("keep_dead", 4000),
        ("name", "x" * 201),
        ("name", "two\nlines"),
        ("creator", 5),
        ("retry_if", None),
        ("backoff", "soon"),
        ("backoff", 10),
        ("secret", "hunter2"),
        ("secret", ""),
        ("headers", []),
        ("headers", {"X": 1}),
        ("headers", {f"X-{n}": "" for n in range(65)}),
        ("email", "ops@example.com"),
        ("email", ["ops@example.com"] * 51),
        ("email", [None]),
    ],
)
def test_a_bad_value_names_its_field(field: str, value: Any) -> None:
    assert message_for(field, value)


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "HTTPS://host:8443/a/b?c=d#e",
        "http://127.0.0.1:80/",
        "http://[::1]:8080/x",
        "http://my_service.internal./",
        "http://bücher.example/straße",
    ],
)
def test_a_url_that_can_be_called(url: str) -> None:
    assert parse({"callback": url}).callback == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "pull topic"),
        ("host/path", "http://"),
        ("ftp://host", "http://"),
        ("http://", "host"),
        ("http:///path", "host"),
        ("http://host:0/", "host"),
        ("http://host:99999/", "valid"),
        ("http://[::1/", "valid"),
        ("http://[v1.x]/", "host"),
        ("http://a..b/", "host"),
        ("http://" + "a" * 64 + ".com/", "host"),
        ("http://a%2eb/", "host"),
        ("http://user:pw@host/", "Authorization"),
        ("http://@host/", "Authorization"),
        ("http://host/a b", "spaces"),
        ("http://host/\r\nX: y", "control"),
        ("http://good\\@evil/", "backslashes"),
        ("http://host/" + "a" * 2048, "2048"),
        (5, "text"),
    ],
)
def test_a_url_that_cannot(url: Any, words: str) -> None:
    assert words in message_for("callback", url)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "host",
        "CONTENT-LENGTH",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "webhook-id",
        "DQ-Topic",
        "Accept-Encoding",
    ],
)
def test_headers_that_frame_route_or_are_dqs_own_are_refused(name: str) -> None:
    assert name in message_for("headers", {name: "x"})


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "é", "x" * 129])
def test_a_header_name_is_a_token(name: str) -> None:
    assert "no header name" in message_for("headers", {name: "x"})


@pytest.mark.parametrize("text", ["a\r\nb", "a\nb", "a\x00b", "a\x7f", "x" * 4097])
def test_a_header_value_is_one_line(text: str) -> None:
    assert "X-A" in message_for("headers", {"X-A": text})


def test_a_header_is_given_once_whatever_its_case() -> None:
    assert "twice" in message_for("headers", {"X-A": "1", "x-a": "2"})


@pytest.mark.parametrize(
    "address",
    ["ops", "@x", "a@", "a@b\r\nBcc: c@d", "a b@c", "a@b c", "a@b,c@d", "<a@b>", "a@b..c", "a@-b"],
)
def test_an_address_has_no_room_for_a_second_header(address: str) -> None:
    assert "address 1" in message_for("email", [address])


def test_a_mistake_in_the_rule_has_its_position() -> None:
    assert "(at character 11)" in message_for("retry_if", "{res.code}=200")


@pytest.mark.parametrize(
    ("doc", "words"),
    [
        (b"", "no valid JSON"),
        (b"{", "no valid JSON"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b'{"delay": NaN}', "no valid JSON"),
        (b'{"delay": 1e999}', "no valid JSON"),
        (b'{"name": "\\ud800"}', "no valid JSON"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b'{"name": "\xed\xa0\x80"}', "UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"delay": ' + b"9" * 100_000 + b"}", "no valid JSON"),
    ],
)
def test_a_document_that_is_none_is_told_in_words(doc: bytes, words: str) -> None:
    assert words in errors_of(doc)[""]


def test_a_document_with_very_many_unknown_fields_is_cut_short() -> None:
    doc = msgspec.json.encode({f"{'x' * 5000}{n}": 0 for n in range(1000)})
    started = time.process_time()
    assert "980 more" in errors_of(doc)[""]
    assert time.process_time() - started < 2


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_fields = st.sampled_from(list(Topic.__struct_fields__))


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_invalid(doc: bytes) -> None:
    try:
        parse_topic("t", doc, 10)
    except Invalid as error:
        assert error.errors


@given(st.dictionaries(_fields | st.text(max_size=10), _json, max_size=6))
def test_no_json_raises_anything_but_invalid(doc: dict[str, Any]) -> None:
    try:
        topic = parse_topic("t", msgspec.json.encode(doc), 10)
    except Invalid as error:
        assert all(each.message for each in error.errors)
    else:
        again = msgspec.json.encode(topic_to_doc(topic, show_secret=True))
        assert parse_topic("t", again, 3) == topic
