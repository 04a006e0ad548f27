"""What a Python producer imports."""

from __future__ import annotations

import json
import socket

import pytest

from dq.client import ApiError, Client, Unreachable
from tests.cli.fake_api import fake_api

PUSHED = {"topic": "t", "id": "1", "due": 1, "state": "delayed", "result": "created"}


def test_a_push_sends_what_was_given_and_nothing_else() -> None:
    with fake_api((201, PUSHED)) as api, Client(api.url) as client:
        assert client.push("t", {"a": "é"}, id="1", delay=2.5, key=None) == PUSHED
        method, path, body = api.requests[0]
        assert (method, path) == ("POST", "/v1/jobs")
        assert json.loads(body) == {"topic": "t", "id": "1", "delay": 2.5, "body": {"a": "é"}}


def test_bytes_are_json_already_and_go_out_as_they_are() -> None:
    with fake_api((201, PUSHED)) as api, Client(api.url) as client:
        client.push("t", b'{"a":  1.0}')
        assert api.requests[0][2].endswith(b'"body": {"a":  1.0}}')


def test_a_push_without_an_id_gets_one_that_can_be_repeated() -> None:
    with fake_api((201, PUSHED), (201, PUSHED)) as api, Client(api.url) as client:
        client.push("t", 1)
        client.push("t", 1)
        first, second = (json.loads(body)["id"] for _, _, body in api.requests)
        assert first != second


def test_a_refusal_carries_status_and_fields() -> None:
    problem = {
        "status": 422,
        "title": "x",
        "detail": "bad",
        "errors": [{"field": "a", "message": "b"}],
    }
    with (
        fake_api((422, problem)) as api,
        Client(api.url) as client,
        pytest.raises(ApiError, match="bad") as caught,
    ):
        client.push("t", 1)
    assert caught.value.status == 422
    assert caught.value.errors == [{"field": "a", "message": "b"}]


def test_an_answer_that_is_not_dqs_is_an_error() -> None:
    with (
        fake_api((200, b"<html>")) as api,
        Client(api.url) as client,
        pytest.raises(ApiError, match="not as dq does"),
    ):
        client.get("t", "1")


def test_a_token_is_shown() -> None:
    with fake_api((200, {"data": []})) as api, Client(api.url, "secret") as client:
        assert client.topics() == []
        assert api.tokens == ["Bearer secret"]


def test_odd_ids_stay_one_part_of_the_path() -> None:
    with fake_api((200, {"result": "cancelled"})) as api, Client(api.url) as client:
        assert client.cancel("t", "a/b?c%") == "cancelled"
        assert api.requests[0][1] == "/v1/jobs/t/a%2Fb%3Fc%25"


def test_a_kept_connection_that_died_is_replaced_without_a_word() -> None:
    with fake_api((201, PUSHED), (201, PUSHED), closes_after=1) as api, Client(api.url) as client:
        client.push("t", 1, id="1")
        client.push("t", 1, id="1")
        assert len(api.requests) == 2


def test_nobody_there_is_told() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(Unreachable, match="refused"):
        client.topics()


def test_only_http_urls_are_taken() -> None:
    with pytest.raises(ValueError, match="http://"):
        Client("ftp://a")
