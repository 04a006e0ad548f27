"""A request as bytes: what stands in it, and that nothing breaks out of its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.callback import CallbackRequest
from dq.delivery.plain import MAX_BODY, request_bytes, target_of


def make(url: str = "http://host/p", body: bytes | None = b"{}", **headers: str) -> CallbackRequest:
    method = "GET" if body is None else "POST"
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return CallbackRequest(method, url, pairs, body, 1.0)


def sent(request: CallbackRequest) -> bytes:
    target = target_of(request)
    assert target is not None
    return request_bytes(request, target)


def test_a_post() -> None:
    assert sent(make("http://Host:81/a%2Fb?q=1?2", DQ_Id="42")) == (
        b"POST /a%2Fb?q=1?2 HTTP/1.1\r\nHost: host:81\r\nDQ-Id: 42\r\nAccept: */*\r\n"
        b"Accept-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_a_get_has_no_length_and_an_empty_body_has_one() -> None:
    assert b"Content-Length" not in sent(make(body=None))
    assert sent(make(body=b"")).endswith(b"\r\nContent-Length: 0\r\n\r\n")


def test_a_topics_accept_takes_the_place_of_the_default() -> None:
    assert sent(make(accept="text/x")).count(b"ccept: ") == 1


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://host", "POST / HTTP/1.1\r\nHost: host\r\n"),
        ("http://host?q=1", "POST /?q=1 HTTP/1.1\r\nHost: host\r\n"),
        ("http://host:80/", "POST / HTTP/1.1\r\nHost: host\r\n"),
        ("http://[::1]:81/x", "POST /x HTTP/1.1\r\nHost: [::1]:81\r\n"),
        ("http://127.0.0.1/x", "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\n"),
        ("http://host/?", "POST /? HTTP/1.1\r\nHost: host\r\n"),
    ],
)
def test_where_it_goes(url: str, line: str) -> None:
    assert sent(make(url)).decode().startswith(line)


@pytest.mark.parametrize(
    "url",
    [
        *("https://host/", "ftp://host/", "host", "http://", "http:///x", "http://user@host/"),
        *("http://host:0/", "http://host:65536/", "http://host:x/", "http://host./"),
        *("http://127.1/", "http://2852039166/", "http://0xa9fea9fe/", "http://1.2.3.4.5/"),
        *("http://[::1/", "http://[v1.x]/", "http://[1.2.3.4]/", "http://[fe80::1%25eth0]/"),
        *("http://host/#part", "http://host/a b", "http://host/\r\nX: y", "http://host/?\r\nX: y"),
        *(
            "http://host/?a b",
            "http://ho\r\nst/",
            "http://host/\0",
            "http://höst/",
            "http://host/é",
        ),
        *("http://host/x\n", "http://host\n", "http://host/?x\n", "http://%68ost/", "http://a%00/"),
    ],
)
def test_anything_unusual_is_left_to_aiohttp(url: str) -> None:
    assert target_of(make(url)) is None


def test_a_long_body_is_left_to_aiohttp() -> None:
    assert target_of(make(body=b"x" * MAX_BODY)) is not None
    assert target_of(make(body=b"x" * (MAX_BODY + 1))) is None


@pytest.mark.parametrize("code", [*range(9), *range(10, 32), 127])
def test_no_control_character_leaves_in_a_header(code: int) -> None:
    for value in (f"a{chr(code)}b", chr(code), f"a{chr(code)}\nX-More: b"):
        with pytest.raises(ValueError, match="control character"):
            sent(make(X_Note=value))
    with pytest.raises(ValueError, match="no header name"):
        sent(make(**{f"X{chr(code)}": "y"}))


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer_Encoding", "TE", "Connection"]
)
def test_no_header_frames_a_request_anew(name: str) -> None:
    with pytest.raises(ValueError, match="frames"):
        sent(make(**{name: "1"}))


@pytest.mark.parametrize("name", ["", "a b", "a:", "é", "a\r\nb"])
def test_a_name_is_a_token(name: str) -> None:
    with pytest.raises(ValueError, match="no header name"):
        sent(make(**{name: "1"}))


def test_tabs_and_other_alphabets_pass() -> None:
    assert "X-Note: a\tb 订单\r\n".encode() in sent(make(X_Note="a\tb 订单"))


@given(st.text(), st.text(), st.text(), st.binary(max_size=20))
def test_one_request_leaves_or_none(path: str, query: str, value: str, body: bytes) -> None:
    request = make(f"http://host/{path}?{query}", body, X_Note=value)
    target = target_of(request)
    if target is None:
        return
    try:
        data = request_bytes(request, target)
    except ValueError:
        return
    head, _, rest = data.partition(b"\r\n\r\n")
    assert rest == body
    assert len(head.split(b"\r\n")) == len(head.splitlines()) == 6
    assert head.count(b" HTTP/1.1\r\n") == 1
