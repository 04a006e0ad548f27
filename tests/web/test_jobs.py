"""The pages about jobs: finding, pushing, one job's page and what it can be told to do."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.db.rows import State
from tests.web.conftest import Served
from tests.web.jobs_at import Elsewhere, add_topic, journaling, push
from tests.web.test_pages import HOSTILE, Tags, assert_is_harmless

HOSTILE_ID = "<script>alert(1)</script>{{7*7}}/?#%41=cmd|'!A0"


@pytest.fixture
async def jobs(served: Served) -> AsyncIterator[Served]:
    """The admin with a journal that is kept up to date."""
    async with journaling(served):
        await add_topic(served, "t")
        yield served


def path_of(topic: str, id_: str) -> str:
    return f"/jobs/{topic}/{quote(id_, safe='')}"


async def test_jobs_are_found_by_each_filter_and_by_all_together(jobs: Served) -> None:
    old = Elsewhere(jobs)
    await old.job("t", "done-1", State.DONE, key="k1", body=b'{"a":"needle"}')
    await old.dead("t", "dead-1", key="k2")
    await old.dead("u", "dead-1", key="k1")
    await push(jobs, "t", "new-1", delay_ms=900_000, key="k1")
    browser = await jobs.visitor()
    for query, found in (
        ("", {"done-1", "dead-1", "new-1"}),
        ("topic=u", {"dead-1"}),
        ("state=dead", {"dead-1"}),
        ("state=done", {"done-1"}),
        ("state=delayed", {"new-1"}),
        ("state=unfinished", {"new-1"}),
        ("state=running", set()),
        ("key=k1&state=done", {"done-1"}),
        ("q=needle", {"done-1"}),
        ("id=done-1", {"done-1"}),
        ("id=done", set()),
        ("id=dead-1&topic=u", {"dead-1"}),
        ("id=done-1&state=dead", set()),
        (f"from={jobs.now_ms + 600_000}", set()),
        (f"to={jobs.now_ms - 30_000}", {"done-1", "dead-1"}),
        ("from=2020-01-01T00:00&to=2255-01-01T00:00:00", {"done-1", "dead-1", "new-1"}),
    ):
        reply = await browser.see(f"/jobs?{query}", *found)
        names = {name for name in ("done-1", "dead-1", "new-1") if f">{name}</bdi>" in reply.text}
        assert names == found, query
    assert (await browser.get("/jobs?topic=u")).text.count("<bdi>dead-1</bdi>") == 1


async def test_ready_and_running_jobs_are_told_apart(jobs: Served) -> None:
    await push(jobs, "t", "now")
    await push(jobs, "t", "later", delay_ms=900_000)
    browser = await jobs.visitor()
    page = await browser.see("/jobs?state=ready", "now")
    assert "later" not in page.words
    for bucket in jobs.outfit.nodes.buckets:
        await jobs.outfit.store.lease(bucket, b"consumer", 1, 10)
    page = await browser.see("/jobs?state=running&topic=t", "now")
    assert "<bdi>now</bdi>" in page.text
    assert "running t now" in (await browser.see("/jobs", "running t now")).words
    one = await browser.get("/jobs/t/now")
    assert "Attempt 1 is under way." in one.words
    assert "Run now" not in one.words


async def test_wrong_filters_are_told_at_their_fields(jobs: Served) -> None:
    browser = await jobs.visitor()
    for query in ("topic=a+b", "state=x", "from=x", "cursor=x", f"q={'x' * 300}", "key=%00"):
        reply = await browser.get(f"/jobs?{query}")
        assert (reply.status, "fault" in reply.text) == (422, True), query
        assert_is_harmless(reply)


async def test_a_list_goes_on_by_cursor(jobs: Served) -> None:
    old = Elsewhere(jobs)
    for number in range(60):
        await old.job("t", f"job-{number:02}", State.DONE)
    browser = await jobs.visitor()
    page = await browser.get("/jobs?topic=t")
    assert "job-59" in page.words and "job-09" not in page.words
    following = next(a["href"] for a in Tags(page.text).named("a") if a.get("rel") == "next")
    assert following is not None and "topic=t" in following
    page = await browser.get(following)
    assert "job-09" in page.words and "job-00" in page.words and "job-59" not in page.words


async def test_the_box_leads_straight_to_the_job(jobs: Served) -> None:
    browser = await jobs.visitor()
    reply = await browser.get(f"/jobs/go?topic=t&id={quote(HOSTILE_ID, safe='')}")
    assert (reply.status, reply.location) == (303, path_of("t", HOSTILE_ID))
    assert (await browser.get("/jobs/go?topic=&id=")).location == "/jobs"


async def test_sql_away_is_told_and_unfinished_jobs_are_still_shown(
    jobs: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(jobs, "t", "now", delay_ms=60_000)

    async def away(*_: object, **__: object) -> None:
        raise DatabaseAway("<b>gone</b>")

    for name in ("search", "history", "open_cursors"):
        monkeypatch.setattr(jobs.admin.journal, name, away)
    browser = await jobs.visitor()
    page = await browser.get("/jobs")
    assert (page.status, "SQL is away: <b>gone</b>" in page.words) == (200, True)
    one = await browser.get("/jobs/t/now")
    assert (one.status, "can't tell everything now: <b>gone</b>" in one.words) == (200, True)
    assert (await browser.get("/jobs/t/never")).status == 503


async def test_the_form_pushes_what_the_api_would(jobs: Served) -> None:
    browser = await jobs.visitor()
    page = await browser.get("/jobs/new?topic=t&body=%7B%22a%22%3A1%7D")
    assert 'value="t"' in page.text and "{&#34;a&#34;:1}" in page.text
    fields = {"topic": "t", "id": "a/b", "body": '{"a": 12345678901234567890}', "delay": "600"}
    reply = await browser.post("/jobs/new", {**fields, "key": "k", "priority": "high"})
    assert (reply.status, reply.location) == (303, "/jobs/t/a%2Fb")
    view = await jobs.admin.schedule.find("t", "a/b")
    assert view is not None
    assert (view.body, view.key, view.priority) == (b'{"a": 12345678901234567890}', "k", "high")
    assert view.due_ms == jobs.now_ms + 600_000
    again = await browser.post("/jobs/new", {**fields, "on_duplicate": "reject"})
    assert (again.status, "already has an unfinished job" in again.words) == (422, True)
    made = await browser.post("/jobs/new", {"topic": "t", "due": "2030-01-02T03:04", "body": ""})
    assert made.status == 303
    log = await browser.get("/access")
    assert "job.push" in log.words and "t/a/b" in log.words


async def test_the_forms_faults_stand_at_their_fields(jobs: Served) -> None:
    await add_topic(jobs, "off", enabled=False)
    browser = await jobs.visitor()
    for fields, field, words in (
        ({"topic": "nope"}, "topic", "not registered"),
        ({"topic": "off"}, "topic", "off line"),
        ({"topic": "a b"}, "topic", "must be 1 to 128"),
        ({"id": "a b"}, "id", "U+0020"),
        ({"id": "x" * 257}, "id", "257 characters"),
        ({"body": "{"}, "body", "is no JSON"),
        ({"body": '1},"delay":0,"body":{"x":1'}, "body", "is no JSON"),
        ({"body": "[" * 100_000}, "body", ""),
        ({"delay": "soon"}, "delay", "number of seconds"),
        ({"delay": "-1"}, "delay", "number of seconds"),
        ({"delay": "1", "due": "2030-01-01 00:00:00"}, "due", "one of the two"),
        ({"due": "yesterday"}, "due", "must be"),
        ({"due": "2030-02-30 00:00:00"}, "due", "does not exist"),
        ({"timeout": "601"}, "timeout", "0.1 to 600"),
        ({"key": "x" * 257}, "key", "256"),
        ({"priority": "urgent"}, "priority", "high"),
        ({"on_duplicate": "x"}, "on_duplicate", "replace"),
    ):
        sent = {"topic": "t", "body": "1", **fields}
        reply = await browser.post("/jobs/new", sent)
        assert reply.status == 422, fields
        at = "e-f-topic" if field == "topic" else f"e-{field}"
        assert f'id="{at}"' in reply.text and words in reply.words, (fields, reply.words)
        assert_is_harmless(reply)
    assert await jobs.admin.inspector.held("ready", None, 10) == []


async def test_a_body_that_is_too_large_is_refused_as_the_api_does(jobs: Served) -> None:
    browser = await jobs.visitor()
    body = "%22" + "x" * jobs.settings.max_body + "%22"
    form = io.BytesIO(f"csrf={browser.csrf}&topic=t&body={body}".encode())
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    reply = await browser.send("POST", "/jobs/new", data=form, headers=kind)
    assert (reply.status, 'id="e-body"' in reply.text) == (422, True)
    assert "at most 1048576 are taken" in reply.words


async def test_a_job_tells_why_it_waits(jobs: Served) -> None:
    await add_topic(jobs, "paused", paused=True)
    await add_topic(jobs, "off")
    await add_topic(jobs, "pull", callback=None)
    for topic in ("t", "paused", "off", "pull"):
        await push(jobs, topic, "now")
    await push(jobs, "t", "later", delay_ms=3_600_000)
    await push(jobs, "nobody", "now")
    await jobs.admin.topics.put(Topic(topic="off", callback="http://127.0.0.1/", enabled=False))
    browser = await jobs.visitor()
    for path, words in (
        ("/jobs/t/later", "It is not due yet: in 1 h"),
        ("/jobs/t/now", "No dq-consumer runs on this machine"),
        ("/jobs/paused/now", "Its topic is paused"),
        ("/jobs/off/now", "Its topic is off line"),
        ("/jobs/pull/now", "waits until somebody fetches it"),
        ("/jobs/nobody/now", "Its topic is not registered"),
    ):
        assert words in (await browser.get(path)).words, path


async def test_a_finished_job_tells_its_story(jobs: Served) -> None:
    old = Elsewhere(jobs)
    reply = f'{{"msg":"{HOSTILE[:40]}\u202e"}}'
    await old.dead("t", HOSTILE_ID, detail="HTTP 500", reply=reply, key=HOSTILE_ID, url=HOSTILE)
    browser = await jobs.visitor()
    page = await browser.get(path_of("t", HOSTILE_ID))
    assert page.status == 200
    assert_is_harmless(page)
    assert "Attempt 3: failed, the job is dead 500 12 ms" in page.words
    assert "<script>alert(1)</script>{{7*7}}" in page.words
    assert "\u202e" not in page.text and "\\u202e" in page.words
    assert_is_harmless(await browser.get("/jobs"))
    assert_is_harmless(await browser.get("/dead"))


async def test_a_body_is_laid_out_shown_as_it_came_cut_and_downloaded(jobs: Served) -> None:
    body = b'{"n": 12345678901234567890123,"s":"\xe2\x80\xae<b>"}'
    large = json.dumps(["x" * 10_000] * 100).encode()
    await push(jobs, "t", "small", body=body, delay_ms=60_000)
    await push(jobs, "t", "large", body=large, delay_ms=60_000)
    browser = await jobs.visitor()
    page = await browser.get("/jobs/t/small")
    assert '"n": 12345678901234567890123, "s": "\\u202e<b>" }' in page.words
    assert "-d &#39;{&#34;topic&#34;:&#34;t&#34;" in page.text
    raw = await browser.get("/jobs/t/small?raw=1")
    assert '{"n": 12345678901234567890123,"s":"\\u202e<b>"}' in raw.words
    page = await browser.get("/jobs/t/large")
    assert "Only the beginning is shown" in page.words and len(page.text) < 100_000
    assert "curl" not in page.words
    file = await browser.get("/jobs/t/large/body")
    assert file.text.encode() == large
    assert file.headers["Content-Type"] == "application/octet-stream"
    assert file.headers["Content-Disposition"] == 'attachment; filename="t-large.json"'


async def test_a_job_is_cancelled_run_and_moved(jobs: Served) -> None:
    for id_ in ("a", "b", "c"):
        await push(jobs, "t", id_, delay_ms=3_600_000)
    browser = await jobs.visitor()
    assert (await browser.post("/jobs/t/a/cancel")).location == "/jobs/t/a"
    assert await jobs.admin.schedule.find("t", "a") is None
    assert "Cancelled" in (await browser.see("/jobs/t/a", "Cancelled")).words
    assert (await browser.post("/jobs/t/b/run")).status == 303
    view = await jobs.admin.schedule.find("t", "b")
    assert view is not None and view.state == "ready"
    assert (await browser.post("/jobs/t/c/move", {"delay": "7200"})).status == 303
    view = await jobs.admin.schedule.find("t", "c")
    assert view is not None and view.due_ms == jobs.now_ms + 7_200_000
    for fields in ({}, {"delay": "x"}, {"due": "x"}, {"delay": "1", "due": "5"}):
        reply = await browser.post("/jobs/t/c/move", fields)
        assert (reply.status, "fault" in reply.text) == (422, True), fields
    assert (await browser.post("/jobs/t/a/run")).status == 409
    assert (await browser.post("/jobs/t/never/cancel")).status == 409
    assert (await browser.get("/jobs/t/never")).status == 404
    assert (await browser.get("/jobs/t/%ff")).status == 404


async def test_a_job_is_pushed_again_as_a_copy(jobs: Served) -> None:
    await Elsewhere(jobs).job("t", "x", State.CANCELLED, body=b'{"big": 1e400}', key="k")
    browser = await jobs.visitor()
    page = await browser.get("/jobs/new?topic=t&copy=x")
    assert "{&#34;big&#34;: 1e400}" in page.text and 'name="key" type="text" value="k"' in page.text


async def test_all_unfinished_jobs_that_match_are_cancelled(jobs: Served) -> None:
    await add_topic(jobs, "u")
    for number in range(12):
        await push(jobs, "t", f"a{number}", delay_ms=3_600_000, key="k" if number < 7 else "")
    await push(jobs, "u", "other", delay_ms=3_600_000)
    jobs.turn_ms(60_000)
    browser = await jobs.visitor()
    await browser.see("/jobs?key=k&topic=t", "a0", "a6")
    page = await browser.get("/jobs/confirm?topic=t&key=k")
    assert "7 unfinished jobs will be cancelled." in page.words
    fields = {str(one["name"]): str(one["value"] or "") for one in Tags(page.text).named("input")}
    started = await browser.post("/jobs/start", fields)
    assert started.status == 303
    done = await browser.see(started.location, "Finished.")
    assert "Cancelled 7" in done.words
    left = {job.id for job in (await jobs.admin.journal.search(state=State.DELAYED)).jobs}
    assert left >= {"a7", "a11", "other"} and await jobs.admin.schedule.find("t", "a0") is None
    assert await jobs.admin.schedule.find("t", "a8") is not None
    log = await browser.get("/access")
    assert "jobs.cancel" in log.words and "done: 7 of 7" in log.words
    await browser.see("/jobs?topic=t&key=k&state=cancelled", "a6")
    assert (
        await browser.get("/jobs/confirm?topic=t&key=k")
    ).location == "/jobs?topic=t&key=k&to=" + (str(jobs.now_ms))


async def test_a_viewer_sees_jobs_and_no_way_to_change_them(jobs: Served) -> None:
    await push(jobs, "t", "now", delay_ms=60_000)
    viewer = await jobs.visitor("viewer")
    for path in ("/jobs", "/jobs/t/now", "/jobs/new?topic=t"):
        reply = await viewer.get(path)
        sent = {
            one["action"] for one in Tags(reply.text).named("form") if one.get("method") == "post"
        }
        assert (reply.status, sent) == (200, {"/logout", "/preferences"}), path
    assert (await viewer.get("/jobs/confirm")).status == 403
    for path in ("/jobs/t/now/cancel", "/jobs/new", "/jobs/start", "/jobs/t/now/move"):
        assert (await viewer.post(path)).status == 403
