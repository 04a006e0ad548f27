"""The command line, run as a shell runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dq.cli import COMMANDS
from tests.cli.command import Done
from tests.cli.fake_api import FakeApi, fake_api

PUSHED = {"topic": "t", "id": "1", "due": 0, "state": "delayed", "result": "created"}
TOPIC = {"topic": "t", "name": "n", "callback": "http://a", "delay": 3.0, "secret": "***"}


def call(folder: Path, api: FakeApi, *words: str, stdin: str = "") -> Done:
    return Done(folder, *words, "--url", api.url, stdin=stdin)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(tmp_path: Path, command: str) -> None:
    done = Done(tmp_path, command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: dq {command}")


def test_the_help_of_start_lists_every_setting(tmp_path: Path) -> None:
    out = Done(tmp_path, "start", "--help").out
    assert "DQ_CALLBACK_DENY" in out
    assert "DQ_MAIL_FROM" in out


def test_an_unknown_command_fails(tmp_path: Path) -> None:
    done = Done(tmp_path, "strat")
    assert done.code == 2
    assert "strat" in done.err


def test_a_wrong_setting_is_told_in_a_line(tmp_path: Path) -> None:
    done = Done(tmp_path, "start", DQ_BUCKETS="none")
    assert done.code == 1
    assert done.err == "dq: DQ_BUCKETS is 'none', not a whole number\n"


def test_settings_come_from_the_named_file(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("consumers = 7\napi_tokens = 'hush'")
    for words in (["--config", "my.toml", "settings"], ["settings", "--config", "my.toml"]):
        shown = json.loads(Done(tmp_path, *words, "--json").out)
        assert shown["consumers"] == "7"
        assert shown["api_tokens"] == "set"


def test_nothing_runs_is_no_success(tmp_path: Path) -> None:
    for command in ("stop", "reload", "status"):
        done = Done(tmp_path, command)
        assert done.code == 1
        assert "dq does not run on" in done.err
    assert json.loads(Done(tmp_path, "status", "--json").out)["running"] is False


def test_a_push_says_what_became_of_it(tmp_path: Path) -> None:
    with fake_api((201, PUSHED), (201, PUSHED)) as api:
        done = call(tmp_path, api, "push", "t", '{"a": 1}', "--id", "1", "--delay", "5")
        assert (done.code, done.out) == (0, "t 1 created, due 1970-01-01T00:00:00.000Z\n")
        assert json.loads(call(tmp_path, api, "push", "t", "1", "--json").out) == PUSHED
        sent = json.loads(api.requests[0][2])
        assert sent == {"topic": "t", "id": "1", "delay": 5.0, "body": {"a": 1}}


def test_a_body_comes_from_the_words_a_file_or_stdin(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"from":  "file"}\n')
    with fake_api((201, PUSHED), (201, PUSHED)) as api:
        call(tmp_path, api, "push", "t", "@body.json")
        call(tmp_path, api, "push", "t", "-", stdin='{"from":  "stdin"}')
        assert b'{"from":  "file"}' in api.requests[0][2]
        assert b'{"from":  "stdin"}' in api.requests[1][2]


def test_a_body_that_is_no_json_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with fake_api() as api:
        done = call(tmp_path, api, "push", "t", "hello")
        assert done.code == 2
        assert "is no JSON" in done.err
        assert api.requests == []


def test_a_refusal_shows_every_field(tmp_path: Path) -> None:
    problem = {"detail": "some fields are bad", "errors": [{"field": "delay", "message": "is odd"}]}
    with fake_api((422, problem)) as api:
        done = call(tmp_path, api, "push", "t", "1")
    assert done.code == 1
    assert done.err == "dq: some fields are bad\n  delay: is odd\n"


def test_nobody_at_the_address_is_told(tmp_path: Path) -> None:
    done = Done(tmp_path, "get", "t", "1", "--url", "http://127.0.0.1:1")
    assert done.code == 1
    assert "does not answer" in done.err


def test_the_token_of_the_settings_is_used_unless_another_is_given(tmp_path: Path) -> None:
    with fake_api((200, {"data": []}), (200, {"data": []})) as api:
        Done(tmp_path, "topic", "list", "--url", api.url, DQ_API_TOKENS="one,two")
        Done(tmp_path, "topic", "list", "--url", api.url, "--token", "x", DQ_API_TOKENS="one")
        assert api.tokens == ["Bearer one", "Bearer x"]


def test_a_running_job_that_was_to_be_cancelled_is_no_success(tmp_path: Path) -> None:
    with fake_api((200, {"result": "running"}), (200, {"result": "cancelled"})) as api:
        assert call(tmp_path, api, "cancel", "t", "1").code == 1
        assert call(tmp_path, api, "cancel", "t", "1").code == 0


def test_setting_a_topic_changes_only_what_is_given(tmp_path: Path) -> None:
    with fake_api((200, TOPIC), (200, TOPIC)) as api:
        words = ["--delay", "9", "--header", "X-A: b", "--rate", "0", "--disabled"]
        assert call(tmp_path, api, "topic", "set", "t", *words).code == 0
        assert api.requests[1][:2] == ("PUT", "/v1/topics/t")
        sent = json.loads(api.requests[1][2])
    assert sent == {
        "name": "n",
        "callback": "http://a",
        "secret": "***",
        "delay": 9.0,
        "headers": {"X-A": "b"},
        "rate": None,
        "enabled": False,
    }


def test_a_new_topic_starts_from_nothing_and_a_file_replaces(tmp_path: Path) -> None:
    with fake_api((404, {"detail": "unknown"}), (201, TOPIC), (201, TOPIC)) as api:
        call(tmp_path, api, "topic", "set", "t", "--callback", "http://b")
        call(tmp_path, api, "topic", "set", "t", "--file", "-", stdin='{"delay": 1}')
        assert [json.loads(body) for method, _, body in api.requests if method == "PUT"] == [
            {"callback": "http://b"},
            {"delay": 1},
        ]
