"""The request of a callback: bytes as pushed, or fields as php-delayqueue's receivers know them."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.callback import CallbackJob, CallbackRequest, build_request, header_safe
from dq.core.clock import local_text
from dq.core.signing import parse_secrets, sign
from dq.core.topic import Topic

DUE_MS, CREATED_MS, NOW_MS = 1_700_000_600_000, 1_700_000_000_000, 1_700_000_601_999
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def make_job(body: bytes = b"{}", attempt: int = 1, id: str = "42") -> CallbackJob:
    return CallbackJob("order_close", id, body, DUE_MS, CREATED_MS, attempt, 3.0, "m-1")


def build(job: CallbackJob, **topic: Any) -> CallbackRequest:
    whole = {"callback": "http://host/path", **topic}
    return build_request(Topic(topic="order_close", **whole), job, NOW_MS, "1.2.3")


def fields_of(body: bytes, attempt: int = 1) -> dict[str, str]:
    request = build(make_job(body, attempt), format="form")
    assert request.body is not None
    return dict(parse_qsl(request.body.decode(), keep_blank_values=True, strict_parsing=True))


def test_json_leaves_byte_for_byte() -> None:
    body = b'{ "b": 1.10, "a": "\\u4e2d" }'
    request = build(make_job(body))
    assert (request.method, request.url, request.body) == ("POST", "http://host/path", body)
    assert request.timeout_s == 3.0
    assert request.headers == [
        ("User-Agent", "dq/1.2.3"),
        ("DQ-Topic", "order_close"),
        ("DQ-Id", "42"),
        ("DQ-Attempt", "1"),
        ("DQ-Due", str(DUE_MS)),
        ("Content-Type", "application/json"),
    ]


def test_form_sends_members_as_php_delayqueue_does() -> None:
    body = '{"x":1,"s":"a b+c&=","n":null,"t":true,"fl":false,"f":1.10,"中":"x"}'.encode()
    request = build(make_job(body), format="form")
    assert ("Content-Type", "application/x-www-form-urlencoded") in request.headers
    times = [local_text(DUE_MS), local_text(CREATED_MS)]
    notify, created = (text.replace(" ", "%20").replace(":", "%3A") for text in times)
    assert (
        request.body
        == (
            "x=1&s=a%20b%2Bc%26%3D&n=&t=1&fl=&f=1.10&%E4%B8%AD=x"
            f"&notify_time={notify}&dq_set_time={created}"
        ).encode()
    )


def test_nested_members_are_json_text_and_numbers_as_written() -> None:
    fields = fields_of(b'{"a":[1, {"b":2}],"o":{"x":1e2},"big":123456789012345678901234567890}')
    assert fields["a"] == '[1, {"b":2}]'
    assert fields["o"] == '{"x":1e2}'
    assert fields["big"] == "123456789012345678901234567890"


def test_retries_are_counted_from_the_first_one_on() -> None:
    assert "exp_notify_nums" not in fields_of(b"{}", attempt=1)
    assert fields_of(b"{}", attempt=2)["exp_notify_nums"] == "1"
    assert list(fields_of(b'{"z":1}', attempt=4).items())[-1] == ("exp_notify_nums", "3")


def test_dqs_own_fields_win_over_members_of_that_name() -> None:
    assert fields_of(b'{"notify_time":"x"}')["notify_time"] == local_text(DUE_MS)


@pytest.mark.parametrize("body", [b'"text"', b"[1,2]", b"5", b"null", b"no json", b"[" * 100_000])
def test_a_body_that_is_no_object_is_one_field(body: bytes) -> None:
    assert fields_of(body)["body"] == body.decode()


def test_get_keeps_the_urls_own_query_and_appends() -> None:
    callback = "http://host/p?fixed=1#part"
    request = build(make_job(b'{"x":"a b"}', 2), callback=callback, method="GET")
    assert request.body is None
    assert request.url.startswith("http://host/p?fixed=1&x=a%20b&notify_time=")
    assert request.url.endswith("&exp_notify_nums=1")
    assert "Content-Type" not in dict(request.headers)


def test_a_url_leaves_in_ascii_with_its_escapes_untouched() -> None:
    callback = 'http://bücher.example:81/straße/%2F?q="ü"&r=%41#x'
    request = build(make_job(), callback=callback)
    expected = "http://xn--bcher-kva.example:81/stra%C3%9Fe/%2F?q=%22%C3%BC%22&r=%41"
    assert request.url == expected


def test_a_topics_headers_may_replace_content_type_and_user_agent() -> None:
    headers = {"content-type": "application/x", "USER-AGENT": "me", "Authorization": "Bearer x"}
    pairs = build(make_job(), headers=headers).headers
    names = [name.lower() for name, _ in pairs]
    assert len(names) == len(set(names))
    assert ("content-type", "application/x") in pairs and ("USER-AGENT", "me") in pairs
    assert ("Authorization", "Bearer x") in pairs


def test_a_secret_signs_what_is_sent() -> None:
    request = build(make_job(b'{"a":1}'), secret=SECRET, format="form")
    headers = dict(request.headers)
    assert headers["webhook-id"] == "m-1"
    assert headers["webhook-timestamp"] == str(NOW_MS // 1000)
    assert request.body is not None
    expected = sign(parse_secrets(SECRET), "m-1", NOW_MS // 1000, request.body)
    assert headers["webhook-signature"] == expected


def test_without_a_secret_nothing_is_signed() -> None:
    assert not any(name.startswith("webhook") for name, _ in build(make_job()).headers)


def test_a_pull_topic_has_no_request() -> None:
    with pytest.raises(ValueError, match="no callback"):
        build(make_job(), callback=None)


@pytest.mark.parametrize(
    ("text", "header"),
    [("42", "42"), ("50%", "50%"), ("订", "%E8%AE%A2"), ("%41", "%2541"), ("a\r\nb", "a%0D%0Ab")],
)
def test_an_id_is_made_safe_for_a_header(text: str, header: str) -> None:
    assert header_safe(text) == header


@given(st.text())
def test_a_header_safe_text_is_ascii_and_can_be_got_back(text: str) -> None:
    safe = header_safe(text)
    assert safe.isascii() and safe.isprintable() and " " not in safe
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert unquote(safe) == text


@given(st.binary(max_size=100), st.sampled_from(["POST", "GET"]), st.sampled_from(["json", "form"]))
def test_no_body_raises_or_breaks_out(body: bytes, method: str, format: str) -> None:
    request = build(make_job(body), method=method, format=format)
    parts = urlsplit(request.url)
    assert (parts.netloc, parts.path, parts.fragment) == ("host", "/path", "")
    assert request.url.isascii() and request.url.isprintable()


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
)
def test_every_text_arrives_in_a_form_as_it_was_pushed(members: dict[str, str]) -> None:
    fields = fields_of(msgspec.json.encode(members))
    own = {"notify_time", "dq_set_time", "exp_notify_nums"}
    for name, text in members.items():
        assert name in own or fields[name] == text
