"""A job's way as people see it: pushed, watched, failing, dead, redriven; and work on many."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.person import Person, person_at
from tests.e2e.program import Program
from tests.e2e.receiver import Call, Receiver
from tests.support import wait_until_async
from tests.web.browser import PASSWORD

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.time_limit(180)]


@pytest.fixture
def broken(receiver: Receiver) -> Iterator[set[str]]:
    """Ids whose callbacks fail, as long as they are in here."""
    failing: set[str] = set()

    def answer(call: Call) -> tuple[int, bytes]:
        if call.headers.get("dq-id", "") in failing:
            return 503, b"the shop is closed"
        return 200, b'{"code":200}'

    before, receiver.answer = receiver.answer, answer
    yield failing
    receiver.answer = before


async def test_a_topic_is_made_tried_and_its_job_watched(
    chromium: Browser, dq: Program, receiver: Receiver, broken: set[str]
) -> None:
    async with person_at(chromium, dq) as person:
        await person.log_in()
        await person.go("/topics/-/new")
        await person.fill("Topic", "orders")
        await person.fill("Callback", "nonsense")
        await person.see("http")
        await expect(person.page.get_by_label("Callback", exact=True)).to_have_attribute(
            "aria-invalid", "true"
        )
        await person.fill("Callback", f"{receiver.url}/paid")
        await expect(person.page.get_by_label("Callback", exact=True)).not_to_have_attribute(
            "aria-invalid", "true"
        )
        await person.fill("Retry if", "{res.code}!=200")
        await person.press("Make it")
        await person.see_heading("orders")

        await person.fill("Body", '{"order": 4711}')
        await person.press("Call back now")
        await person.see("success", "What went out", '{"code":200}')
        assert [call.path for call in receiver.calls] == ["/paid"]
        assert receiver.calls[0].body == b'{"order": 4711}'

        await person.go("/")
        await person.see_figure("Delayed", "0")
        loads = await _count_loads(person)
        dq.push("orders", "later", {"order": 1}, delay=3600)
        await person.see_figure("Delayed", "1")
        gate = threading.Event()
        receiver.answer = lambda call: (200, b"") if gate.wait(60) else (500, b"")
        dq.push("orders", "now", {"order": 2}, timeout=60)
        await person.see_figure("Running", "1")
        gate.set()
        await person.see_figure("Running", "0")
        assert await _count_loads(person) == loads, "all this was seen without loading the page"


async def _count_loads(person: Person) -> float:
    """When this document began: another one began at another time."""
    began: float = await person.page.evaluate("performance.timeOrigin")
    return began


async def test_a_failing_job_dies_is_found_redriven_and_delivered(
    chromium: Browser, dq: Program, receiver: Receiver, broken: set[str]
) -> None:
    broken.add("order-1")
    dq.topic("failing", callback=receiver.url, max_retries=2)
    async with person_at(chromium, dq) as person:
        await person.log_in()
        await person.go("/jobs/new?topic=failing")
        await person.fill("Id", "order-1")
        await person.fill("Key", "customer-7")
        await person.fill("Body", '{"order": 1}')
        await person.press("Push it")
        await person.see("Attempt 3: failed, the job is dead")
        await person.see("Attempt 1: failed", "Attempt 2: failed", "the shop is closed")

        await person.press("Dead")
        await person.fill("Contains", "shop is clo")
        await person.press("Search")
        row = person.page.get_by_role("row", name=re.compile("order-1"))
        await expect(row).to_contain_text("503")
        await person.page.wait_for_url(re.compile("shop"))
        await person.press("Throw the chosen ones away …")
        await person.see("There is nothing to do: no dead job is chosen.")
        await row.get_by_role("checkbox").check()
        await person.press("Redrive the chosen ones …")
        await person.see("1 dead job will be put back on the schedule.")
        broken.clear()
        await person.press("Redrive them")
        await person.see("Finished.")
        await person.press("To the list")
        await person.see_after_reload("No dead job matches.")
        await person.go("/jobs/failing/order-1")
        await person.see("Attempt 1: done")
        await expect(person.page.locator("h1")).to_contain_text("done")
    assert [call.attempt for call in receiver.calls if call.id == "order-1"] == [1, 2, 3, 1]


async def test_a_jobs_page_follows_its_job_and_disturbs_nobody(
    chromium: Browser, dq: Program, receiver: Receiver, broken: set[str]
) -> None:
    dq.topic("soon", callback=receiver.url, backoff="1h")
    broken.add("failing")
    async with person_at(chromium, dq) as person:
        await person.log_in()
        dq.push("soon", "1", {"order": 1}, delay=2)
        await person.go("/jobs/soon/1")
        loads = await _count_loads(person)
        await person.see("It is not due yet", "Run now", "Another time")
        await person.see("Attempt 1: done")
        await expect(person.page.locator("h1")).to_contain_text("done")
        await expect(person.named("Run now")).to_have_count(0)
        await expect(person.page.get_by_role("heading", name="Another time")).to_have_count(0)
        assert await _count_loads(person) == loads, "all this was seen without loading the page"

        dq.push("soon", "failing", {"order": 2}, delay=3600)
        await person.go("/jobs/soon/failing")
        await person.fill("or at a time", "2031-")
        await person.page.locator("h2", has_text="Body").click()
        await _wait_until_times_move(person)
        await expect(person.page.get_by_label("or at a time")).to_have_value("2031-")
        marked = person.page.locator("pre.body")
        await marked.evaluate("(one) => getSelection().selectAllChildren(one)")
        assert dq.call("PATCH", "/v1/jobs/soon/failing", {"delay": 0}).status == 200
        await person.see("Attempt 1: failed", "the shop is closed", "One attempt failed")
        assert "order" in await person.page.evaluate("getSelection().toString()")
        summary = person.page.locator("summary").last
        await summary.click()
        await expect(person.page.locator("details").last).not_to_have_attribute("open", "")
        await _wait_until_times_move(person)
        await expect(person.page.locator("details").last).not_to_have_attribute("open", "")


async def _wait_until_times_move(person: Person) -> None:
    """Until the page says another "3 s ago" than now."""
    when = person.page.locator(".story time").first
    await expect(when).not_to_have_text(await when.inner_text())


async def test_what_was_lost_by_accident_is_replayed(
    chromium: Browser, receiver: Receiver, tmp_path: Path
) -> None:
    since = time.strftime("%Y-%m-%dT%H:%M", time.localtime(time.time() - 120))
    few = {"DQ_CONSUMERS": "1", "DQ_BUCKETS": "1", "DQ_ADMIN_PASSWORD": PASSWORD}
    with Program(tmp_path, **few) as dq:
        dq.topic("orders", callback=receiver.url)
        for number in range(3):
            dq.push("orders", f"lost-{number}", {"order": number}, delay=3600)
        await wait_until_async(lambda: len(dq.lines("request")) == 3, 20)
        dq.kill_all()
        shutil.rmtree(tmp_path / "data")
        dq.start()
        dq.topic("orders", callback=receiver.url)
        async with person_at(chromium, dq) as person:
            await person.log_in()
            await person.press("Replay")
            await person.fill("Since", since)
            await person.fill("Topic", "orders")
            await person.press("Look what is missing")
            await person.see("3 jobs are missing", "lost-2")
            await person.press("Push again")
            await person.see_figure("Pushed again", "3")
            assert person.asked == ["3 jobs are pushed again, unless dq still has them. Go on?"]
        assert [dq.state("orders", f"lost-{number}") for number in range(3)] == ["delayed"] * 3


async def test_a_token_is_made_shown_once_and_revoked(chromium: Browser, dq: Program) -> None:
    async with person_at(chromium, dq) as person:
        await person.log_in()
        await person.go("/access")
        await person.fill("Name of a new token", "shop")
        await person.press("Make a token")
        token = await person.page.locator(".secret").inner_text()
        assert token.startswith("dq_")
        row = person.page.get_by_role("region", name="API tokens").get_by_role("row", name="shop")
        sent = {"Authorization": f"Bearer {token}"}
        await wait_until_async(lambda: dq.call("GET", "/v1/topics").status == 401)
        assert dq.call("GET", "/v1/topics", headers=sent).status == 200
        await person.go("/access")
        await expect(row).to_contain_text("open")
        assert token not in await person.page.content()
        await person.press("Revoke")
        await expect(row).to_contain_text("revoked")
        assert len(person.asked) == 1
        await wait_until_async(lambda: dq.call("GET", "/v1/topics", headers=sent).status == 401)
