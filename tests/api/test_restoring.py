"""POST /v1/restore: what it takes, what it answers, and one at a time."""

from __future__ import annotations

import asyncio

import pytest

from dq.core.errors import DatabaseAway
from dq.journal.audit import Audited
from tests.api.conftest import Served, assert_problem
from tests.support import wait_until_async


async def test_a_restore_answers_its_counts(api: Served) -> None:
    api.audit.found = Audited(looked_at=10, restored=3, rescheduled=1, overdue_left=2)
    reply = await api.call("POST", "/v1/restore", {"overdue": False})
    assert reply.status == 200
    assert reply.doc == {
        "looked_at": 10,
        "restored": 3,
        "rescheduled": 1,
        "overdue_left": 2,
        "elsewhere": 0,
        "nodes_away": [],
    }
    assert (await api.call("POST", "/v1/restore")).status == 200
    assert (await api.call("POST", "/v1/restore", {})).status == 200
    assert api.audit.asked == [False, True, True]


@pytest.mark.parametrize(
    ("body", "field"),
    [(b"[]", ""), (b'{"overdue":1}', "overdue"), (b'{"overdu":true}', "overdu")],
)
async def test_a_bad_document_is_refused(api: Served, body: bytes, field: str) -> None:
    assert_problem(await api.call("POST", "/v1/restore", body), 422, "invalid", field)
    assert api.audit.asked == []


async def test_a_second_restore_at_the_same_time_is_refused(api: Served) -> None:
    api.audit.gate.clear()
    first = asyncio.create_task(api.call("POST", "/v1/restore"))
    await wait_until_async(lambda: bool(api.audit.asked))
    assert_problem(await api.call("POST", "/v1/restore"), 409, "restore-running")
    api.audit.gate.set()
    assert (await first).status == 200
    assert (await api.call("POST", "/v1/restore")).status == 200


async def test_a_stop_cuts_a_restore_short(api: Served) -> None:
    api.audit.gate.clear()
    asked = asyncio.create_task(api.call("POST", "/v1/restore"))
    await wait_until_async(lambda: bool(api.audit.asked))
    stopped = asyncio.create_task(api.runner.cleanup())
    assert_problem(await asked, 503, "restore-stopped")
    await stopped


async def test_a_database_that_is_away_is_told(api: Served) -> None:
    api.audit.failure = DatabaseAway("gone")
    assert_problem(await api.call("POST", "/v1/restore"), 503, "database-away")
    assert (await api.call("POST", "/v1/restore")).status == 503


async def test_one_job(api: Served) -> None:
    api.audit.results = {("t", "a/b"): "restored", ("t", "2"): "present", ("t", "3"): "done"}
    assert (await api.call("POST", "/v1/restore/t/a%2Fb")).doc == {"result": "restored"}
    assert (await api.call("POST", "/v1/restore/t/2")).doc == {"result": "present"}
    finished = await api.call("POST", "/v1/restore/t/3")
    assert "is done" in assert_problem(finished, 404, "job-unknown")["detail"]
    assert_problem(await api.call("POST", "/v1/restore/t/4"), 404, "job-unknown")
    assert_problem(await api.call("POST", "/v1/restore/t/%20"), 404, "job-unknown")
