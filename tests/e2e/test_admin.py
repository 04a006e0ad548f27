"""The web admin on the whole program: what it changes reaches all workers, and loses no job."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.e2e.test_nodes import held_by, in_ms, push_waiting, valkeys
from tests.support import wait_until
from tests.valkey import Valkey
from tests.web.browser import PASSWORD, Browser


@asynccontextmanager
async def admin_of(dq: Program) -> AsyncIterator[Browser]:
    """Logged in."""
    browser = Browser(f"http://127.0.0.1:{dq.environ['DQ_ADMIN_PORT']}")
    try:
        assert (await browser.log_in()).status == 303
        yield browser
    finally:
        await browser.close()


@pytest.mark.time_limit(60)
async def test_a_token_opens_within_two_seconds_and_closes_again(tmp_path: Path) -> None:
    with Program(tmp_path, DQ_ADMIN_PASSWORD=PASSWORD) as dq:
        dq.topic("t")

        def status(token: str = "", path: str = "/v1/topics", method: str = "GET") -> int:
            sent = {"Authorization": f"Bearer {token}"} if token else {}
            doc = {"topic": "t"} if method == "POST" else None
            return dq.call(method, path, doc, headers=sent).status

        assert status() == 200
        async with admin_of(dq) as browser:
            made = await browser.post("/access/tokens", {"name": "shop"})
            (token,) = set(re.findall(r"dq_[\w-]{20,}", made.text))
            wait_until(lambda: status() == 401, 2.5, "callers need a token")
            assert status(token) == 200 and status("dq_wrong") == 401
            assert [status(token, "/v1/jobs", "POST") for _ in range(3)] == [201] * 3
            await browser.see("/access", "just now")
            page = await browser.get("/access")
            (no,) = re.findall(r"/access/tokens/(\d+)/revoke", page.text)
            assert (await browser.post(f"/access/tokens/{no}/revoke")).status == 303
            wait_until(lambda: status(token) == 401, 2.5, "the revoked token is refused")
            assert status(token, "/v1/jobs", "POST") == 401


@pytest.mark.time_limit(120)
async def test_a_node_comes_takes_jobs_and_is_drained(tmp_path: Path) -> None:
    with Receiver() as receiver, valkeys(tmp_path, 2) as (first, second):
        environ = {"DQ_REDIS_URLS": first.url, "DQ_ADMIN_PASSWORD": PASSWORD, "DQ_BUCKETS": "2"}
        with Program(tmp_path, **environ) as dq:
            dq.topic("t", callback=receiver.url)
            async with admin_of(dq) as browser:
                node = {"node": second.url}
                added = await browser.post("/nodes", {"title": "second", "url": second.url})
                assert added.status == 303, added.words
                await browser.see("/nodes", "It is empty.")
                early = [f"e{number}" for number in range(20)]
                push_waiting(dq, early, in_ms(3600))
                assert held_by(second, early) == set()
                assert (await browser.post("/nodes/open", node)).status == 303
                late = _push_until_held(dq, second)
                assert (await browser.post("/nodes/drain", node)).status == 303
                await browser.see("/nodes", "wait there still")
                full = await browser.post("/nodes/remove", node)
                assert full.status == 409
            everyone = [*early, *late]
            for id_ in everyone:
                assert dq.call("POST", f"/v1/jobs/t/{id_}/run").status == 200, id_
            wait_until(lambda: {one.id for one in receiver.calls} >= set(everyone), 20, "called")
            assert receiver.ids().most_common(1)[0][1] == 1, "each once"


def _push_until_held(dq: Program, node: Valkey) -> list[str]:
    """Push new jobs until the node has been let take some; all their ids."""
    ids: list[str] = []

    def has_some() -> bool:
        some = [f"l{len(ids) + number}" for number in range(10)]
        push_waiting(dq, some, in_ms(3600))
        ids.extend(some)
        return bool(held_by(node, some))

    wait_until(has_some, 20, "the node takes jobs")
    return ids
