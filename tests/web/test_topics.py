"""The pages about topics: the list, the form, a topic's own page."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dq.core.topic import Topic, topic_to_doc
from dq.db.rows import State
from dq.queue.inspect import TopicLook
from dq.web.topic_form import new_secret
from tests.web.browser import Reply
from tests.web.conftest import Served
from tests.web.jobs_at import Elsewhere, journaling, push
from tests.web.test_pages import HOSTILE, Tags, assert_is_harmless
from tests.web.topics_at import (
    FULL,
    LINE,
    add_topic,
    as_typed,
    fault_at,
    fields_of,
    form_at,
    stop_sql,
)


@pytest.fixture
async def jobs(served: Served) -> AsyncIterator[Served]:
    """The admin with a journal that is kept up to date."""
    async with journaling(served):
        await add_topic(served, "t")
        yield served


async def test_every_field_is_saved_shown_again_and_copied(served: Served) -> None:
    browser = await served.visitor()
    assert (await form_at(browser, "/topics/-/new")).get("enabled") == "1"
    reply = await browser.post("/topics/-/new", {"topic": "orders", **as_typed(FULL)})
    assert (reply.status, reply.location) == (303, "/topics/orders"), reply.words
    made = served.admin.topics.get("orders")
    assert made == Topic(topic="orders", **FULL)
    assert (await browser.get("/topics/orders")).words.count("Topic orders is saved.") == 1
    # Saved again as the form shows it, nothing changes.
    fields = await form_at(browser, "/topics/orders/edit")
    assert (fields["rate"], fields["delay"], fields["timeout"]) == ("0.00001", "0.1", "12.5")
    assert (await browser.post("/topics/orders/edit", fields)).status == 303
    assert served.admin.topics.get("orders") == made
    copy = await form_at(browser, "/topics/-/new?copy=orders")
    assert copy["topic"] == ""
    assert (await browser.post("/topics/-/new", {**copy, "topic": "check"})).status == 303
    assert served.admin.topics.get("check") == Topic(topic="check", **FULL)
    # A topic may be called like a part of an address.
    for name in ("new", "-", "edit"):
        await browser.post("/topics/-/new", {"topic": name, "callback": "http://127.0.0.1/"})
        for path in ("", "/edit", "/rule", "/delete"):
            page = await browser.get(f"/topics/{name}{path}")
            assert (page.status, name in page.words) == (200, True), name
    assert (await browser.get("/topics/check")).status == 200


async def test_a_change_is_in_the_log_of_changes_without_what_opens_something(
    served: Served,
) -> None:
    browser = await served.visitor()
    await browser.post("/topics/-/new", {"topic": "orders", **as_typed(FULL)})
    fields = await form_at(browser, "/topics/orders/edit")
    await browser.post("/topics/orders/edit", {**fields, "name": LINE, "max_retries": "0"})
    await browser.post("/topics/orders/switch", {"to": "on"})
    page = await browser.get("/access?target=orders")
    assert_is_harmless(page)
    assert page.words.count("topic.put") == 2 and '"max_retries": 0' in page.words
    assert "off line, paused" in page.words and "on line, paused" in page.words
    assert "open sesame" not in page.text and '"Authorization": "***"' in page.words
    page = await browser.get("/topics/orders")
    assert_is_harmless(page)
    assert "No retry: a job is dead after its first failure." in page.words


async def test_each_fault_stands_beside_its_field(served: Served) -> None:
    browser = await served.visitor()
    wrong = {
        "topic": "a b",
        "name": "x" * 201,
        "callback": "ftp://x",
        "method": "PUT",
        "format": "xml",
        "headers": "X-Ok: 1\nnonsense",
        "delay": "-1",
        "timeout": "0,5",
        "priority": "urgent",
        "email": "a@example.com\nnobody",
        "creator": "x" * 201,
        "retry_if": "{res.code}=200",
        "max_retries": "1.5",
        "backoff": "soon",
        "concurrency": "0",
        "rate": "9" * 5000,
        "secret": "whsec_short",
        "keep_done": "1e5",
        "keep_dead": "for ever",
    }
    page = await browser.post("/topics/-/new", wrong)
    assert page.status == 422
    assert_is_harmless(page)
    assert {name: bool(fault_at(page, name)) for name in wrong} == dict.fromkeys(wrong, True)
    assert fields_of(page)["email"] == wrong["email"], "what was typed is still there"
    assert "whsec_short" not in page.text
    assert "line 2 must look like Name: value" in fault_at(page, "headers")
    assert '<pre class="spot" id="spot">{res.code}<mark>=</mark>200</pre>' in page.text
    assert '<details class="more" open>' in page.text
    assert served.admin.topics.all() == []
    for headers, words in (
        ("A: 1\nA: 2", "line 2 gives a header a second time"),
        ("Host: x", "can&#39;t be set"),
    ):
        page = await browser.post("/topics/-/new", {"topic": "t", "headers": headers})
        assert words in fault_at(page, "headers")
    huge = {"max_retries": "9" * 5000, "topic": HOSTILE, "callback": HOSTILE, "retry_if": HOSTILE}
    page = await browser.post("/topics/-/new", huge)
    assert page.status == 422
    assert_is_harmless(page)


async def test_what_is_typed_is_checked_and_not_saved(served: Served) -> None:
    await add_topic(served, "there", secret=new_secret()[1])
    browser = await served.visitor()

    async def check(**fields: str) -> dict[str, Any]:
        reply = await browser.post("/topics/check", fields)
        assert reply.status == 200, reply.words
        return dict(json.loads(reply.text))

    good = {"callback": "http://127.0.0.1/", "max_retries": "3", "backoff": "10s,500ms,1h"}
    said = await check(topic="t", **good)
    assert said == {
        "faults": {},
        "spot": None,
        "backoff": "Retries after 10 s, 500 ms, 1 h; dead after 1 h in all.",
    }
    said = await check(known="there", **good)
    assert said["faults"] == {}
    said = await check(topic="there", **good)
    assert said["faults"] == {"topic": "is registered already; open it to change it"}
    said = await check(topic="t", retry_if="{res.a}==1 && {res", timeout="x", backoff="1 ")
    assert said["spot"] == ["{res.a}==1 && ", "{", "res"]
    assert set(said["faults"]) == {"retry_if", "timeout"}
    for retries, backoff, words in (
        ("0", "2n+1", "No retry: a job is dead after its first failure."),
        ("2", "1.5s", "Retries after 1.5 s, 1.5 s; dead after 3 s in all."),
        ("9", "exp:1s,4s", "Retries after 1 s, 2 s, 4 s, 4 s, 4 s, 4 s …; dead after 31 s in all."),
        ("3", "nonsense", ""),
        ("", "2n+1", "Retries after 1 min, 3 min"),
        ("9" * 5000, "2n+1", "Retries after 1 min, 3 min"),
    ):
        said = await check(topic="t", max_retries=retries, backoff=backoff)
        assert said["backoff"].startswith(words) and bool(said["backoff"]) == bool(words), retries
    assert [topic.topic for topic in served.admin.topics.all()] == ["there"]


async def test_what_somebody_else_changed_is_not_overwritten_unseen(served: Served) -> None:
    await add_topic(served, "t", name="old")
    mine, other = await served.visitor(), await served.visitor()
    fields = await form_at(mine, "/topics/t/edit")
    theirs = await form_at(other, "/topics/t/edit")
    assert (await other.post("/topics/t/edit", {**theirs, "name": "theirs"})).status == 303
    page = await mine.post("/topics/t/edit", {**fields, "name": "mine"})
    assert (page.status, "Somebody has changed this topic" in page.words) == (422, True)
    topic = served.admin.topics.get("t")
    assert topic is not None and topic.name == "theirs"
    again = fields_of(page)
    assert again["name"] == "mine"
    assert (await mine.post("/topics/t/edit", again)).status == 303
    topic = served.admin.topics.get("t")
    assert topic is not None and topic.name == "mine"
    made = await mine.post("/topics/-/new", {"topic": "t", "callback": "http://127.0.0.1/x"})
    assert "is registered already" in fault_at(made, "topic")
    await served.admin.topics.delete("t")
    assert (await mine.post("/topics/t/edit", again)).status == 404


async def test_a_secret_is_shown_once_and_never_again(served: Served) -> None:
    browser = await served.visitor()
    fields = {"topic": "t", "callback": "http://127.0.0.1/", "enabled": "1"}
    shown = []

    def made(reply: Reply) -> str:
        found = re.search(r'<code class="secret">(whsec_[^<]+)</code>', reply.text)
        assert reply.status == 200 and found, reply.words
        shown.append(found[1])
        return found[1]

    def kept() -> list[str]:
        topic = served.admin.topics.get("t")
        assert topic is not None
        return (topic.secret or "").split()

    first = made(await browser.post("/topics/-/new", {**fields, "generate": "1"}))
    assert kept() == [first]
    # An empty field keeps it; another one beside it, then alone, then none.
    form = await form_at(browser, "/topics/t/edit")
    assert form["secret"] == "" and form["keep_secret"] == "1"
    assert (await browser.post("/topics/t/edit", {**form, "name": "x"})).status == 303
    assert kept() == [first]
    form = await form_at(browser, "/topics/t/edit")
    second = made(await browser.post("/topics/t/edit", {**form, "generate": "1"}))
    assert kept() == [second, first]
    form = await form_at(browser, "/topics/t/edit")
    del form["keep_secret"]
    third = made(await browser.post("/topics/t/edit", {**form, "generate": "1"}))
    assert kept() == [third]
    own, _ = new_secret()
    form = await form_at(browser, "/topics/t/edit")
    shown.append(own)
    assert (await browser.post("/topics/t/edit", {**form, "secret": own})).status == 303
    assert kept() == [own]
    copy = await form_at(browser, "/topics/-/new?copy=t")
    await browser.post("/topics/-/new", {**copy, "topic": "u"})
    twin = served.admin.topics.get("u")
    assert twin is not None and twin.secret is None
    for path in ("/topics", "/topics/t", "/topics/t/edit", "/topics/t/rule", "/access"):
        text = (await browser.get(path)).text
        assert not [secret for secret in shown if secret[6:30] in text], path
    form = await form_at(browser, "/topics/t/edit")
    assert (await browser.post("/topics/t/edit", {**form, "no_secret": "1"})).status == 303
    assert kept() == []


# The list, and what is done there


async def test_topics_are_turned_off_on_paused_and_resumed(served: Served) -> None:
    await add_topic(served, "t")
    browser = await served.visitor()
    for to, enabled, paused, words in (
        ("off", False, False, "Topic t is off line"),
        ("pause", False, True, "Topic t is paused"),
        ("on", True, True, "Topic t is on line."),
        ("resume", True, False, "Topic t goes on."),
    ):
        back = "/topics?q=t&line="
        reply = await browser.post("/topics/t/switch", {"to": to, "back": back})
        assert (reply.status, reply.location) == (303, back)
        assert words in (await browser.get(reply.location)).words
        topic = served.admin.topics.get("t")
        assert topic is not None and (topic.enabled, topic.paused) == (enabled, paused)
    evil = await browser.post("/topics/t/switch", {"to": "off", "back": "//evil.example"})
    assert evil.location == "/"
    assert (await browser.post("/topics/t/switch", {"to": "x"})).status == 422
    assert (await browser.post("/topics/nobody/switch", {"to": "on"})).status == 404


async def test_the_list_is_searched_filtered_and_cut_into_pages(served: Served) -> None:
    put = served.admin.repository.put_topic
    for number in range(110):
        name = "Étoile" if number == 7 else ""
        await put(Topic(topic=f"job-{number:03}", name=name, enabled=number % 2 == 0))
    await put(Topic(topic="Zebra", paused=True, name=LINE))
    await served.admin.topics.sync()
    browser = await served.visitor()

    def names(page: Reply) -> list[str]:
        return re.findall(r'<th scope="row" class="name"><a href="/topics/([^"]+)"', page.text)

    for query, found, words in (
        ("q=JOB-00", 10, "10 of 111 topics"),
        ("q=%C3%A9toile", 1, "1 of 111 topics"),
        ("line=paused", 1, "1 of 111 topics"),
        ("line=off&q=10", 5, "5 of 111 topics"),
        ("line=nonsense", 50, "111 topics"),
        ("q=%3Cscript%3E", 1, "1 of 111 topics"),
        ("q=nothing", 0, "No topic matches."),
    ):
        page = await browser.get(f"/topics?{query}")
        assert (page.status, len(names(page)), words in page.words) == (200, found, True), query
        assert_is_harmless(page)
    seen: list[str] = []
    path = "/topics?q=job&line=off"
    while path:
        page = await browser.get(path)
        seen += names(page)
        links = [a["href"] for a in Tags(page.text).named("a") if a.get("rel") == "next"]
        path = links[0] or "" if links else ""
        assert not path or ("q=job" in path and "line=off" in path)
        await served.admin.repository.put_topic(Topic(topic="job-0000", enabled=False))
    assert seen == [f"job-{number:03}" for number in range(1, 110, 2)]
    assert names(await browser.get("/topics?cursor=zzz")) == []


async def test_the_list_tells_how_topics_do(jobs: Served) -> None:
    old = Elsewhere(jobs)
    await add_topic(jobs, "unheard", callback=None)
    await old.dead("t", "a")
    await old.job("t", "b", State.DONE)
    await push(jobs, "t", "now")
    browser = await jobs.visitor()
    # pushed, delivered, failed attempts, died, cancelled: each with today's
    page = await browser.see("/topics", "on line 1 0 3 today 3 1 today 1 1 today 1 1 today 1 0")
    assert "none: jobs are leased on line 0 0 0 0 0 0 0" in page.words


async def test_the_first_page_leads_to_a_topic_that_works(served: Served) -> None:
    browser = await served.visitor()
    page = await browser.get("/topics")
    assert "There is no topic yet" in page.words
    assert "curl -X PUT http://127.0.0.1:6789/v1/topics/first" in page.words
    fields = await form_at(browser, "/topics/-/new?first=1")
    assert (await browser.post("/topics/-/new", fields)).location == "/topics/first"
    first = served.admin.topics.get("first")
    assert first is not None and first.callback == "http://127.0.0.1:6789/healthz"
    assert "There is no topic yet" not in (await browser.get("/topics")).words


async def test_a_topic_is_deleted_after_its_waiting_jobs_were_named(jobs: Served) -> None:
    browser = await jobs.visitor()
    assert "No job of it waits." in (await browser.get("/topics/t/delete")).words
    for id_ in ("a", "b"):
        await push(jobs, "t", id_, delay_ms=60_000)
    await browser.see("/topics/t/delete", "2 jobs of it still wait.")
    assert jobs.admin.topics.get("t") is not None
    reply = await browser.post("/topics/t/delete")
    assert (reply.status, reply.location) == (303, "/topics")
    assert "Topic t is deleted." in (await browser.get("/topics")).words
    assert jobs.admin.topics.get("t") is None
    log = (await browser.get("/access?target=t")).words
    assert "topic.delete" in log and '"callback": "http://127.0.0.1/"' in log
    for path in ("", "/edit", "/delete", "/rule"):
        assert (await browser.get(f"/topics/t{path}")).status == 404
    for path in ("delete", "edit", "rule", "test"):
        assert (await browser.post(f"/topics/t/{path}")).status == 404


# A topic's own page


async def test_a_topic_shows_what_it_is_and_how_it_does(jobs: Served) -> None:
    old = Elsewhere(jobs)
    odd = "a/b\\c?%41#"
    await add_topic(jobs, "orders", **{**FULL, "enabled": True, "rate": 1_000_000.0})
    await old.job("orders", "fine", State.DONE, status=200, detail="", reply='{"code":200}')
    await old.dead("orders", odd, detail="HTTP 500 <b>", reply=LINE)
    await push(jobs, "orders", "now", delay_ms=-1_000)
    await push(jobs, "orders", "later", delay_ms=3_600_000)
    browser = await jobs.visitor()
    page = await browser.see(
        "/topics/orders", "Delayed 1 Ready 1 Running 0 Pushed 4 today 4 Delivered 1"
    )
    assert_is_harmless(page)
    assert "5 in flight , 1000000 a second" in page.words.replace("flight,", "flight ,")
    assert "Delay 100 ms Timeout 12.5 s" in page.words
    assert "finished jobs for ever, dead ones 1 d 12 h" in page.words
    assert "HTTP 500 <b>" in page.words and "Bearer open sesame" in page.words
    assert 'href="/jobs/orders/a%2Fb%5Cc%3F%2541%23"' in page.text
    assert (await browser.get("/jobs/orders/a%2Fb%5Cc%3F%2541%23")).status == 200
    charts = re.findall(r'<svg[^>]*aria-label="([^"]*)"', page.text)
    assert len(charts) == 3
    viewer = await jobs.visitor("viewer")
    page = await viewer.get("/topics/orders")
    assert page.status == 200 and "open sesame" not in page.text


async def test_sql_away_leaves_the_pages_standing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_topic(served, "t", retry_if="{res.a}==1")
    await served.push("t", "now")
    browser = await served.visitor()
    form = await form_at(browser, "/topics/t/edit")
    rule = await form_at(browser, "/topics/t/rule")
    stop_sql(served, monkeypatch)
    for path in ("/topics", "/topics/t", "/topics/t/delete"):
        page = await browser.get(path)
        assert (page.status, "SQL is away: <b>gone</b>" in page.words) == (200, True), path
        assert_is_harmless(page)
    assert "on line 1 0 – – – – –" in (await browser.get("/topics")).words
    assert "Delayed – Ready 1 Running 0" in (await browser.get("/topics/t")).words
    for path in ("/topics/t/edit", "/topics/t/rule"):
        assert (await browser.get(path)).status == 200
    # What was typed is not lost with it, and the second try saves it.
    made = {"topic": "u", "callback": "http://127.0.0.1/"}
    for path, fields, kept in (
        ("/topics/t/edit", {**form, "name": "typed"}, 'value="typed"'),
        ("/topics/-/new", made, 'value="http://127.0.0.1/"'),
        ("/topics/t/rule", {**rule, "rule": "{res.b}==2", "act": "save"}, "{res.b}==2"),
        ("/topics/t/rule", {**rule, "act": "past"}, "{res.a}==1"),
    ):
        page = await browser.post(path, fields)
        assert (page.status, "SQL is away" in page.words) == (503, True), path
        assert kept in page.text
        assert_is_harmless(page)
    assert (await browser.post("/topics/t/delete")).status == 503
    assert (await browser.post("/topics/t/switch", {"to": "off"})).status == 503
    monkeypatch.undo()
    page = await browser.post("/topics/t/edit", {**form, "name": "typed"})
    assert page.status == 303


async def test_nodes_away_leave_the_pages_standing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(names: list[str]) -> dict[str, TopicLook]:
        return {name: TopicLook() for name in names}

    await add_topic(served, "t")
    monkeypatch.setattr(served.admin.inspector, "topics", nothing)
    browser = await served.visitor()
    for path in ("/topics", "/topics/t"):
        assert (await browser.get(path)).status == 200


async def test_a_viewer_sees_topics_and_no_way_to_change_them(served: Served) -> None:
    await add_topic(served, "t", secret=new_secret()[1])
    before = topic_to_doc(served.admin.topics.all()[0], show_secret=True)
    viewer = await served.visitor("viewer")
    for path in ("/topics", "/topics?q=t", "/topics/t"):
        page = await viewer.get(path)
        assert page.status == 200
        links = [str(a.get("href")) for a in Tags(page.text).named("a")]
        assert not [one for one in links if re.search("/(edit|delete|rule|-|new)", one)], path
        assert "/topics/" not in str([f.get("action") for f in Tags(page.text).named("form")])
    for path in ("/topics/-/new", "/topics/t/edit", "/topics/t/rule", "/topics/t/delete"):
        page = await viewer.get(path)
        assert (page.status, "change nothing" in page.words) == (403, True), path
    for path in ("-/new", "t/edit", "t/rule", "t/delete", "t/test", "t/switch", "check"):
        fields = {"topic": "new", "to": "off", "act": "save", "rule": "1==1", "body": "1"}
        assert (await viewer.post(f"/topics/{path}", fields)).status == 403, path
    assert [topic_to_doc(t, show_secret=True) for t in served.admin.topics.all()] == [before]


# Test callbacks and test jobs
