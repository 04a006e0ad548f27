"""`dq dead`: what it asks the API, and what it tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done
from tests.cli.fake_api import FakeApi, fake_api

JOB: dict[str, Any] = {
    "topic": "t",
    "id": "1",
    "died": 1_790_000_000_000,
    "attempt": 3,
    "status": 500,
    "detail": "HTTP \x1b[2J500",
}


def page(*jobs: Any, cursor: str | None = None) -> tuple[int, Any]:
    return 200, {"data": list(jobs), "next_cursor": cursor, "has_more": cursor is not None}


def done(name: str, count: int, cursor: str | None = None, **more: Any) -> tuple[int, Any]:
    counts = {"matched": count, name: count, "gone": 0, "failed": 0, "reasons": []}
    return 200, {**counts, "next_cursor": cursor, "has_more": cursor is not None, **more}


def call(folder: Path, api: FakeApi, *words: str, stdin: str = "") -> Done:
    return Done(folder, "dead", *words, "--url", api.url, stdin=stdin)


def asked(api: FakeApi) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in api.requests]


def test_a_list_goes_on_to_its_limit_and_steers_no_terminal(tmp_path: Path) -> None:
    with fake_api(page(JOB, cursor="9"), page(JOB, cursor="5")) as api:
        shown = call(
            tmp_path, api, "list", "--topic", "t", "--limit", "2", "--from", "2026-01-01T00:00:00Z"
        )
        assert shown.code == 0 and "there are more" in shown.err
        assert shown.out.count("2026-09-21T") == 2 and "\x1b" not in shown.out
        assert asked(api)[0][1] == "/v1/dead?topic=t&from=1767225600000&limit=2"
        assert "cursor=9" in asked(api)[1][1]


def test_a_job_is_shown_with_its_story(tmp_path: Path) -> None:
    history = [{"at": 1, "state": "dead", "attempt": 3, "status": 500, "detail": "HTTP 500"}]
    job = {"state": "dead", "created": 0, "history": history}
    with fake_api((200, job), (200, {**job, "state": "done"})) as api:
        shown = call(tmp_path, api, "show", "t", "a/b")
        assert shown.code == 0 and "HTTP 500" in shown.out
        assert asked(api) == [("GET", "/v1/jobs/t/a%2Fb")]
        assert call(tmp_path, api, "show", "t", "a/b").code == 1


def test_one_or_many_are_redriven(tmp_path: Path) -> None:
    answers = [(200, {"result": "redriven"}), done("redriven", 1000, "7"), done("redriven", 5)]
    with fake_api(*answers) as api:
        assert call(tmp_path, api, "redrive", "t", "1").out == "t 1 redriven\n"
        assert call(tmp_path, api, "redrive", "t", "--q", "down").out == "1005 redriven\n"
        assert asked(api)[0] == ("POST", "/v1/jobs/t/1/redrive")
        assert json.loads(api.requests[1][2]) == {"topic": "t", "q": "down", "limit": 1000}
        assert json.loads(api.requests[2][2])["cursor"] == "7"


def test_what_fails_is_no_success(tmp_path: Path) -> None:
    answer = done("redriven", 3, "5", failed=1, reasons=["topic 'x' is off line"], trouble="away")
    with fake_api(answer) as api:
        told = call(tmp_path, api, "redrive", "--all")
        assert told.code == 1
        assert "topic 'x' is off line" in told.err and "away" in told.err


def test_dropping_asks_first(tmp_path: Path) -> None:
    with fake_api((200, {"result": "dropped"}), done("dropped", 2)) as api:
        assert call(tmp_path, api, "drop", "t", "1", stdin="n\n").code != 0
        assert api.requests == []
        assert call(tmp_path, api, "drop", "t", "1", stdin="y\n").out == "t 1 dropped\n"
        told = call(tmp_path, api, "drop", "--all", "--yes", "--json")
        assert json.loads(told.out)["dropped"] == 2
        assert asked(api) == [("DELETE", "/v1/dead/t/1"), ("POST", "/v1/dead/drop")]


@pytest.mark.parametrize(
    "words",
    [["redrive"], ["drop", "--yes"], ["redrive", "t", "1", "--q", "x"], ["list", "--from", "x"]],
)
def test_nothing_is_done_by_mistake(tmp_path: Path, words: list[str]) -> None:
    with fake_api() as api:
        assert call(tmp_path, api, *words).code == 2
        assert api.requests == []
