"""The page about dead jobs: finding them, and redriving or forgetting some or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dq.core.errors import DatabaseAway, NodeAway
from dq.db.rows import State
from dq.journal.dead import Done
from dq.queue.schedule import NewJob
from tests.support import wait_until_async
from tests.web.browser import Browser, Reply
from tests.web.conftest import Served
from tests.web.jobs_at import Elsewhere, add_topic, journaling
from tests.web.test_pages import HOSTILE, Tags, assert_is_harmless


@pytest.fixture
async def jobs(served: Served) -> AsyncIterator[Served]:
    async with journaling(served):
        await add_topic(served, "t")
        yield served


def fields_of(page: Reply) -> dict[str, Any]:
    """The hidden fields of a confirm page, those that come several times as a list."""
    fields: dict[str, Any] = {}
    for one in Tags(page.text).named("input"):
        if one.get("type") == "hidden" and one["name"] not in ("csrf", "back"):
            fields.setdefault(str(one["name"]), []).append(one["value"] or "")
    return {name: values if name == "ids" else values[0] for name, values in fields.items()}


async def carry_out(browser: Browser, path: str) -> Reply:
    """From the confirm page to the end of the work."""
    page = await browser.get(path)
    assert page.status == 200, page.location
    fields = [(n, v) for n, vs in fields_of(page).items() for v in (vs if n == "ids" else [vs])]
    data = [("csrf", browser.csrf), *fields]
    started = await browser.send("POST", "/dead/start", data=data)
    assert started.status == 303, started.words
    async with asyncio.timeout(20):
        while (page := await browser.get(started.location)).words.find("Under way") >= 0:
            await asyncio.sleep(0.02)
    return page


async def test_dead_jobs_are_found_by_death_reason_and_topic(jobs: Served) -> None:
    old, now_ms = Elsewhere(jobs), jobs.now_ms
    await old.dead("t", "late", at_ms=now_ms - 1_000, detail="timed out after 3 s")
    await old.dead("t", "early", at_ms=now_ms - 7_200_000, reply="<b>db down</b>")
    await old.dead("u", "other", at_ms=now_ms - 2_000, key="k9")
    await old.job("t", "fine", State.DONE)
    browser = await jobs.visitor()
    for query, found in (
        ("", ["other", "early", "late"]),
        ("topic=t", ["early", "late"]),
        ("q=timed+out", ["late"]),
        ("q=db+down", ["early"]),
        ("q=k9", ["other"]),
        (f"from={now_ms - 3_600_000}", ["other", "late"]),
        (f"to={now_ms - 3_600_000}", ["early"]),
        ("topic=never", []),
    ):
        page = await browser.get(f"/dead?{query}")
        names = [n for n in ("other", "early", "late", "fine") if f"<bdi>{n}</bdi>" in page.text]
        assert (page.status, sorted(names)) == (200, sorted(found)), query
        assert_is_harmless(page)
    for query in ("cursor=x", "from=x", "topic=a%20b"):
        assert (await browser.get(f"/dead?{query}")).status == 422, query


async def test_the_badge_counts_the_deaths_of_a_day_that_nobody_has_dealt_with(
    jobs: Served,
) -> None:
    browser = await jobs.visitor()
    assert "died in the last" not in (await browser.get("/dead")).words
    old = Elsewhere(jobs)
    await old.dead("t", "yesterday", at_ms=jobs.now_ms - 90_000_000)
    await old.dead("t", "today")
    await old.dead("t", "redriven")
    await old.job("t", "redriven", State.DONE)
    assert await jobs.admin.dead.count_since(jobs.now_ms - 86_400_000, 100) == 1
    await browser.see("/dead", "Dead 1 (died in the last 24 h: 1)")


async def test_everything_that_matches_is_redriven_and_the_rest_is_left_alone(
    jobs: Served,
) -> None:
    old = Elsewhere(jobs)
    for number in range(230):
        await old.dead("t", f"a{number}", body=b'{"n":%d}' % number, key="k")
    await old.dead("u", "other")
    browser = await jobs.visitor()
    page = await browser.get("/dead/confirm?act=redrive&topic=t")
    assert "230 dead jobs will be put back on the schedule." in page.words
    await old.dead("t", "died-after-the-question")
    data = [("csrf", browser.csrf), *fields_of(page).items()]
    started = await browser.send("POST", "/dead/start", data=data)
    page = await browser.see(started.location, "Finished.")
    assert "Looked at 230 of 230 Redriven 230" in page.words
    view = await jobs.admin.schedule.find("t", "a7")
    assert view is not None and (view.body, view.key, view.attempt) == (b'{"n":7}', "k", 0)
    assert await jobs.admin.schedule.find("t", "died-after-the-question") is None
    assert await jobs.admin.schedule.find("u", "other") is None
    await browser.see("/dead?topic=t", "died-after-the-question")
    # The last ones are dead no more as soon as the journal has their pushes.
    await browser.see("/dead?topic=t&q=a7", "No dead job matches.")
    log = await browser.get("/access")
    assert "dead.redrive" in log.words and "done: 230 of 230" in log.words


async def test_the_chosen_ones_are_forgotten_for_ever(jobs: Served) -> None:
    old = Elsewhere(jobs)
    await old.job("t", "a", State.CANCELLED)
    versions = [await old.dead("t", id_) for id_ in ("a", "b", "c")]
    chosen = "&".join(f"ids={version.hex()}" for version in versions[:2])
    browser = await jobs.visitor()
    page = await browser.get(f"/dead/confirm?act=drop&{chosen}&ids=zz&ids=00")
    assert "2 dead jobs will be forgotten." in page.words and "for ever" in page.words
    done = await carry_out(browser, f"/dead/confirm?act=drop&{chosen}")
    assert "Thrown away 2" in done.words
    assert await jobs.admin.journal.history("t", "a") is None, "its older versions went with it"
    assert (await browser.get("/jobs/t/b")).status == 404
    assert (await browser.get("/jobs/t/c")).status == 200
    again = await browser.get(f"/dead/confirm?act=drop&{chosen}")
    assert (again.status, again.location) == (303, "/dead")
    none = await browser.get("/dead/confirm?act=drop&only=chosen&topic=t")
    assert (none.status, none.location) == (303, "/dead?topic=t"), "not all of them"


async def test_one_is_redriven_and_one_thrown_away_on_its_page(jobs: Served) -> None:
    old = Elsewhere(jobs)
    await old.dead("t", "a/b")
    await old.dead("t", "c")
    await old.dead("gone", "x")
    browser = await jobs.visitor()
    await browser.get("/jobs/t/a%2Fb")
    assert (await browser.post("/jobs/t/a%2Fb/redrive")).location == "/jobs/t/a%2Fb"
    assert await jobs.admin.schedule.find("t", "a/b") is not None
    assert (await browser.post("/jobs/t/a%2Fb/redrive")).status == 409
    assert (await browser.post("/jobs/t/c/drop")).location == "/dead"
    assert (await browser.get("/jobs/t/c")).status == 404
    assert (await browser.post("/jobs/t/c/drop")).status == 409
    reply = await browser.post("/jobs/gone/x/redrive")
    assert (reply.status, "not registered" in reply.words) == (404, True)


async def test_what_could_not_be_done_is_told_and_done_by_asking_again(
    jobs: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Elsewhere(jobs)
    for number in range(3):
        await old.dead("t", f"a{number}")
    await old.dead("unknown", "x")
    push, refused = jobs.admin.schedule.push, [True]

    def fail_once(job: NewJob) -> Any:
        if job.id == "a1" and refused.pop() if refused else False:
            raise NodeAway("<i>gone</i>")
        return push(job)

    monkeypatch.setattr(jobs.admin.schedule, "push", fail_once)
    browser = await jobs.visitor()
    page = await carry_out(browser, "/dead/confirm?act=redrive")
    assert "Broken off" in page.words and "Redriven 2" in page.words and "Failed 2" in page.words
    assert "topic 'unknown' is not registered" in page.words
    assert_is_harmless(page)
    await browser.see("/dead?topic=t", "a1")
    page = await carry_out(browser, "/dead/confirm?act=redrive&topic=t")
    assert "Finished." in page.words and "Looked at 1 of 1 Redriven 1" in page.words


async def test_a_work_is_stopped_goes_on_unseen_and_one_runs_at_a_time(
    jobs: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Elsewhere(jobs).dead("t", "a")
    gate, steps = asyncio.Event(), [0]

    async def step(*_: object) -> Done:
        steps[0] += 1
        await gate.wait()
        return Done(matched=1, done=1, below=5)

    monkeypatch.setattr(jobs.admin.dead, "step", step)
    browser = await jobs.visitor()
    page = await browser.get("/dead/confirm?act=redrive&topic=t")
    fields = fields_of(page)
    started = await browser.post("/dead/start", fields)
    page = await browser.get(started.location)
    assert "Under way" in page.words and "<progress" in page.text
    second = await browser.post("/dead/start", fields)
    assert (second.status, "is under way" in second.words) == (409, True)
    await wait_until_async(lambda: steps[0] > 0)
    await browser.get(started.location)
    work_id = started.location.partition("?")[0]
    assert (await browser.post(f"{work_id}/stop")).location == started.location
    gate.set()
    page = await browser.see(started.location, "Stopped.")
    assert steps[0] == 1 and "Ask for the same there again" in page.words
    assert 'href="/dead?topic=t"' in page.text


async def test_the_progress_is_streamed(jobs: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await Elsewhere(jobs).dead("t", "a")
    gate = asyncio.Event()

    async def step(*_: object) -> Done:
        await gate.wait()
        return Done(matched=1, done=1)

    monkeypatch.setattr(jobs.admin.dead, "step", step)
    browser = await jobs.visitor()
    page = await browser.get("/dead/confirm?act=redrive")
    started = await browser.post("/dead/start", fields_of(page))
    page = await browser.get(started.location)
    live = next(one["data-live"] for one in Tags(page.text).named("div") if "data-live" in one)
    async with asyncio.timeout(20), browser.session.get(f"{browser.base}{live}") as stream:
        assert b"Under way" in await stream.content.readuntil(b"\n\n")
        gate.set()
        while b"Finished." not in await stream.content.readuntil(b"\n\n"):
            pass


async def test_a_work_of_a_process_that_is_gone_leads_back_to_its_list(jobs: Served) -> None:
    browser = await jobs.visitor()
    page = await browser.get("/bulk/nobody?kind=drop&topic=t&q=%3Cb%3E")
    assert (page.status, 'href="/dead?topic=t&amp;q=%3Cb%3E"' in page.text) == (200, True)
    assert_is_harmless(page)
    assert (await browser.get("/bulk/nobody")).status == 404
    assert (await browser.post("/bulk/nobody/stop")).status == 404


async def test_hostile_texts_and_broken_forms_do_no_harm(jobs: Served) -> None:
    old = Elsewhere(jobs)
    text = f"{HOSTILE}=cmd|' /C calc'!A0"
    await old.dead("t", "x", detail=text, reply=text * 100, key=text.replace("\u202e", "")[:200])
    browser = await jobs.visitor()
    for path in ("/dead", "/dead/confirm?act=drop", "/jobs/t/x"):
        page = await browser.get(path)
        assert_is_harmless(page)
        assert page.status == 200 and "\u202e" not in page.text and "<script>alert(1)" in page.words
    for fields in ({}, {"act": "redrive"}, {"act": "drop", "cursor": "x"}, {"act": "x"}):
        assert (await browser.post("/dead/start", fields)).status in (404, 422), fields
    assert (await browser.get("/dead/confirm?act=x")).status == 404


async def test_sql_away_is_told(jobs: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise DatabaseAway("gone")

    for name in ("page", "newest"):
        monkeypatch.setattr(jobs.admin.dead, name, away)
    browser = await jobs.visitor()
    page = await browser.get("/dead")
    assert (page.status, "SQL is away: gone" in page.words) == (200, True)
    assert (await browser.get("/dead/confirm?act=drop")).status == 503


async def test_a_viewer_looks_and_changes_nothing(jobs: Served) -> None:
    await Elsewhere(jobs).dead("t", "x")
    viewer = await jobs.visitor("viewer")
    page = await viewer.get("/dead")
    assert page.status == 200 and "<bdi>x</bdi>" in page.text
    assert "/dead/confirm?act" not in page.text and 'type="checkbox"' not in page.text
    assert (await viewer.get("/dead/confirm?act=drop")).status == 403
    assert (await viewer.post("/dead/start", {"act": "drop", "cursor": "9"})).status == 403
    assert (await viewer.post("/jobs/t/x/drop")).status == 403
