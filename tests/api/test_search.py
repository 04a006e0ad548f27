"""GET /v1/jobs: what may be asked, and pages."""

from __future__ import annotations

import pytest

from dq.api.deps import JobSearch
from dq.core.errors import DatabaseAway, NodeAway
from tests.api.conftest import Served, assert_problem
from tests.api.doubles import CREATED_MS, Record


async def test_every_parameter_reaches_the_journal(api: Served) -> None:
    query = "topic=t&state=dead&key=k%201&q=%C3%A9&from=17&to=2026-11-21T06:00:00%2B08:00&limit=9"
    assert (await api.call("GET", f"/v1/jobs?{query}")).status == 200
    assert api.journal.searches == [
        JobSearch("t", "dead", "k 1", "é", 17, 1_795_212_000_000, limit=9)
    ]


async def test_a_line_tells_what_a_job_is_without_its_whole_body(api: Served) -> None:
    api.journal.add(Record("t", "1", "done", body='"éééééééé"'.encode(), key="k"))
    doc = (await api.call("GET", "/v1/jobs")).doc
    assert doc == {
        "data": [
            {
                "topic": "t",
                "id": "1",
                "state": "done",
                "due": CREATED_MS + 1000,
                "attempt": 1,
                "priority": "normal",
                "key": "k",
                "created": CREATED_MS,
                "preview": '"éééé\ufffd',
                "size": 18,
            }
        ],
        "next_cursor": None,
        "has_more": False,
    }


async def test_pages_are_followed_by_cursor_or_by_link(api: Served) -> None:
    for number in range(3):
        api.journal.add(Record("t", str(number)))
    first = await api.call("GET", "/v1/jobs?topic=t&limit=2")
    assert (first.doc["has_more"], first.doc["next_cursor"]) == (True, "2")
    target, _, relation = first.headers["Link"].partition(">")
    assert relation == '; rel="next"'
    second = await api.call("GET", target.removeprefix("<"))
    assert [job["id"] for job in second.doc["data"]] == ["2"]
    assert "Link" not in second.headers and not second.doc["has_more"]


async def test_unfinished_states_are_as_the_nodes_know_them(api: Served) -> None:
    for id in ("waiting", "busy"):
        await api.push(topic="t", id=id)
        api.journal.add(Record("t", id, "delayed"))
    api.schedule.running.add(("t", "busy"))
    for state, ids in [("running", ["busy"]), ("delayed", ["waiting"]), ("ready", [])]:
        doc = (await api.call("GET", f"/v1/jobs?state={state}")).doc
        assert [job["id"] for job in doc["data"]] == ids
        assert api.journal.searches[-1].state == "delayed"
    states = {job["id"]: job["state"] for job in (await api.call("GET", "/v1/jobs")).doc["data"]}
    assert states == {"waiting": "delayed", "busy": "running"}


async def test_a_node_that_is_away_does_not_stop_a_search(api: Served) -> None:
    api.journal.add(Record("t", "1", "delayed"))
    api.schedule.failure = NodeAway("n1")
    assert (await api.call("GET", "/v1/jobs")).doc["data"][0]["state"] == "delayed"


async def test_a_search_without_the_database_is_503(api: Served) -> None:
    api.journal.failure = DatabaseAway("timed out")
    assert_problem(await api.call("GET", "/v1/jobs"), 503, "database-away")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("stat=dead", "stat"),
        ("state=failed", "state"),
        ("state=", "state"),
        ("topic=a%20b", "topic"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("limit=%D9%A3", "limit"),
        ("from=-1", "from"),
        ("from=99999999999999999999", "from"),
        ("to=yesterday", "to"),
        ("to=2026-11-21T06:00:00+08:00", "to"),
        ("q=", "q"),
        ("q=%00", "q"),
        ("key=" + "k" * 257, "key"),
        ("topic=t&topic=u", "topic"),
        ("x" * 900 + "=1", "x" * 64 + "…"),
    ],
)
async def test_a_bad_parameter_is_named(api: Served, query: str, field: str) -> None:
    reply = await api.call("GET", f"/v1/jobs?{query}")
    assert_problem(reply, 422, "invalid", field)
    assert api.journal.searches == []
