"""The pages about topics: the list, the form, a topic's own page, test callbacks, rules."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dq.core.errors import DatabaseAway
from dq.core.outcome import BY_RULE
from dq.core.rule import parse_rule
from dq.core.topic import Topic, topic_to_doc
from dq.db.attempts import Attempt
from dq.db.rows import State
from dq.delivery.attempt import REPLY_KEPT, call_and_judge
from dq.queue.inspect import TopicLook
from dq.web import topic_page
from dq.web.topic_backtest import back_test
from dq.web.topic_form import new_secret, number_text
from tests.e2e.receiver import Call, Receiver
from tests.web.browser import Browser, Reply
from tests.web.conftest import Served
from tests.web.jobs_at import Elsewhere, journaling, push
from tests.web.test_pages import HOSTILE, Tags, assert_is_harmless

LINE = HOSTILE.replace("\u202e", "")
FULL: dict[str, Any] = {
    "name": "Orders & more",
    "callback": "https://example.com/hook?a=1",
    "method": "GET",
    "format": "form",
    "headers": {"X-Shop": "7", "Authorization": "Bearer open sesame"},
    "delay": 0.1,
    "timeout": 12.5,
    "priority": "high",
    "email": ["a@example.com", "b@example.com"],
    "creator": "ops",
    "retry_if": "{res.code}!=200\n && {status}==200",
    "empty_is_failure": False,
    "max_retries": 3,
    "backoff": "10s,1m",
    "concurrency": 5,
    "rate": 0.00001,
    "enabled": False,
    "paused": True,
    "keep_done": 0.0,
    "keep_dead": 1.5,
}


@pytest.fixture
async def jobs(served: Served) -> AsyncIterator[Served]:
    """The admin with a journal that is kept up to date."""
    async with journaling(served):
        await add_topic(served, "t")
        yield served


async def add_topic(served: Served, topic: str, **fields: Any) -> None:
    fields = {"callback": "http://127.0.0.1/", **fields}
    await served.admin.topics.put(Topic(topic=topic, **fields))


def fields_of(page: Reply) -> dict[str, str]:
    """What a browser would send of the form as it stands: the first that is not the bar's."""
    fields: dict[str, str] = {}
    text = page.text[page.text.index("<main") :]
    for one in Tags(text).named("input"):
        kept = one.get("type") != "checkbox" or "checked" in one
        if kept and one.get("name") not in (None, "csrf", "back"):
            fields[str(one["name"])] = one.get("value") or ""
    for name, value in re.findall(r'(?s)<textarea[^>]* name="(\w+)"[^>]*>\n(.*?)</textarea>', text):
        fields[name] = re.sub(r"&#(\d+);|&lt;|&gt;|&amp;", _char, value)
    for name, options in re.findall(r'(?s)<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', text):
        values = Tags(options).named("option")
        chosen = next((o for o in values if "selected" in o), values[0])
        fields[name] = chosen["value"] or ""
    return fields


def _char(found: re.Match[str]) -> str:
    return chr(int(found[1])) if found[1] else {"&lt;": "<", "&gt;": ">", "&amp;": "&"}[found[0]]


def fault_at(page: Reply, field: str) -> str:
    found = re.search(rf'<p class="fault" id="e-{field}">(.*?)</p>', page.text)
    return found[1] if found else ""


async def form_at(browser: Browser, path: str) -> dict[str, str]:
    page = await browser.get(path)
    assert page.status == 200, page.words
    return fields_of(page)


def as_typed(topic: dict[str, Any]) -> dict[str, str]:
    """FULL as somebody types it."""
    fields = {name: str(value) for name, value in topic.items() if isinstance(value, str | float)}
    fields |= {name: "1" for name, value in topic.items() if value is True}
    fields["headers"] = "\r\n".join(f"{k}: {v}" for k, v in topic["headers"].items())
    fields["email"] = "\r\n".join(topic["email"])
    fields |= {n: number_text(topic[n]) for n in ("max_retries", "concurrency", "rate")}
    return {name: value for name, value in fields.items() if topic.get(name) is not False}


def stop_sql(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise DatabaseAway("<b>gone</b>")

    for part, names in (
        (served.admin.counts, ("of_topics", "per_minute")),
        (served.admin.attempts, ("last", "count_unfinished")),
        (served.admin.repository, ("put_topic", "delete_topic", "topics_revision")),
    ):
        for name in names:
            monkeypatch.setattr(part, name, away)


# The form


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


async def test_a_test_callback_shows_what_went_out_and_what_came_back(jobs: Served) -> None:
    answers: list[tuple[int, bytes]] = []

    def answer(_: Call) -> tuple[int, bytes]:
        return answers[-1]

    with Receiver(answer) as receiver:
        await add_topic(
            jobs,
            "t",
            callback=f"{receiver.url}/hook",
            headers={"X-Shop": "<7>"},
            retry_if="{res.code}!=200",
            max_retries=2,
            secret=new_secret()[1],
        )
        browser = await jobs.visitor()
        for came, words in (
            ((200, b'{"code":200}'), "success HTTP 200 A job would be finished with this."),
            ((200, b'{"code":7}'), f"failure {BY_RULE} A job would be retried after 1 min"),
            ((500, b"\xff<b>broken"), "failure HTTP 500 A job would be retried after 1 min"),
            ((204, b""), "failure empty reply A job would be retried after 1 min"),
            ((200, HOSTILE.encode() * 50), "Only its first 1 KB is shown"),
        ):
            answers.append(came)
            page = await browser.post("/topics/t/test", {"body": '{"n": "<i>"}'})
            assert (page.status, words in page.words) == (200, True), page.words
            assert_is_harmless(page)
            assert "POST http://127.0.0.1" in page.words and "X-Shop: <7>" in page.words
            assert '{"n": "<i>"}' in page.words and "webhook-signature: v1," in page.words
        calls = receiver.calls
        assert [call.body for call in calls] == [b'{"n": "<i>"}'] * 5
        assert len({call.id for call in calls}) == 5 and calls[0].path == "/hook"
        await add_topic(jobs, "t", callback=receiver.url, max_retries=0, paused=True)
        answers.append((500, "\u202ex".encode()))
        page = await browser.post("/topics/t/test", {"body": "1"})
        assert "A job would be dead with this: the topic allows no retry." in page.words
        assert "its jobs wait all the same" in page.words
        assert "\u202e" not in page.text and "\\u202ex" in page.words
    page = await browser.post("/topics/t/test", {"body": "1"})
    assert (page.status, "none: no reply came" in page.words) == (200, True)
    assert "failure connect refused" in page.words
    for body in ("", "{", '{"a":1} x', HOSTILE):
        page = await browser.post("/topics/t/test", {"body": body})
        assert (page.status, "is no JSON" in fault_at(page, "body")) == (422, True)
        assert_is_harmless(page)
    await add_topic(jobs, "t", callback="http://169.254.169.254/latest")
    page = await browser.post("/topics/t/test", {"body": "1"})
    assert "failure address 169.254.169.254 is denied" in page.words
    await add_topic(jobs, "t", callback=None)
    assert (await browser.post("/topics/t/test", {"body": "1"})).status == 409
    assert "Send a test callback" not in (await browser.get("/topics/t")).words
    # Nothing of all this is a job.
    assert (await jobs.admin.journal.search()).jobs == []
    log = (await browser.get("/access?target=t")).words
    assert log.count("topic.test") == 8 and f"{BY_RULE}, " in log


async def test_only_a_few_test_callbacks_run_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = asyncio.Semaphore(0), asyncio.Event()

    async def call(*given: Any) -> Any:
        begun.release()
        await may_end.wait()
        return await call_and_judge(*given)

    monkeypatch.setattr(topic_page, "call_and_judge", call)
    with Receiver() as receiver:
        await add_topic(served, "t", callback=receiver.url)
        browser = await served.visitor()
        under_way = [
            asyncio.create_task(browser.post("/topics/t/test", {"body": "1"}))
            for _ in range(topic_page.MOST_TESTS)
        ]
        for _ in under_way:
            await begun.acquire()
        refused = await browser.post("/topics/t/test", {"body": "1"})
        assert (refused.status, "Too many test callbacks" in refused.words) == (429, True)
        may_end.set()
        assert [reply.status for reply in await asyncio.gather(*under_way)] == [200] * 5
        assert (await browser.post("/topics/t/test", {"body": "1"})).status == 200


async def test_a_test_job_is_pushed_from_the_topics_page(jobs: Served) -> None:
    browser = await jobs.visitor()
    page = await browser.get("/topics/t")
    links = [str(a.get("href")) for a in Tags(page.text).named("a")]
    link = next(one for one in links if one.startswith("/jobs/new?"))
    fields = await form_at(browser, link)
    assert (fields["topic"], fields["body"], fields["delay"]) == ("t", '{"test": true}', "5")
    reply = await browser.post("/jobs/new", fields)
    assert reply.status == 303 and reply.location.startswith("/jobs/t/")
    await browser.see("/topics/t", "Delayed 1")


# Rules


async def test_the_rule_tester_says_which_part_was_true_and_why(served: Served) -> None:
    await add_topic(served, "t", retry_if="{res.code}!=200")
    browser = await served.visitor()
    fields = await form_at(browser, "/topics/t/rule")
    assert fields["rule"] == "{res.code}!=200" and fields["status"] == "200"

    async def try_it(rule: str, reply: str, status: str = "200") -> Reply:
        sent = {**fields, "rule": rule, "reply": reply, "status": status, "act": "try"}
        page = await browser.post("/topics/t/rule", sent)
        assert page.status == 200, page.words
        assert_is_harmless(page)
        assert fields_of(page)["reply"] == reply
        return page

    page = await try_it(
        "{res.code}==200 && !{res.d.0.ok} || {status}>300", '{"code":"200","d":[{}]}'
    )
    assert "retry The rule is true." in page.words
    assert '{res.code}==200 true {res.code} is "200"' in page.words
    assert "{res.d.0.ok} false {res.d.0.ok} is null" in page.words
    assert "{status}>300 false {status} is 200" in page.words
    page = await try_it("{res.code}!={res.want}", '{"code":1,"want":1}')
    assert "success The rule is false." in page.words
    assert "{res.code} is 1 , {res.want} is 1" in page.words
    page = await try_it("{res}==1", "1", "503")
    assert "retry The rule is true." in page.words
    page = await try_it("{res}==2", "1", "503")
    assert "It fails for another reason: HTTP 503" in page.words
    page = await try_it("{res.a}==null", f"no json {LINE}")
    assert "The reply is no JSON, so everything in it is null." in page.words
    page = await try_it("", "{}")
    assert "There is no rule: it is never true." in page.words
    page = await try_it("{res.a}=='<b>'", json.dumps({"a": LINE + "x" * 900}))
    assert "x…" in page.words
    await try_it("{res.a}==1", "[" * 10_000)
    before = served.admin.topics.get("t")
    for rule, reply, status, field in (
        ("{res.a}=1", "{}", "200", "rule"),
        (HOSTILE, "{}", "200", "rule"),
        ("{res.a}==1", "{}", "0200", "status"),
        ("{res.a}==1", "{}", "9" * 5000, "status"),
        ("{res.a}==1", "{}", "", "status"),
    ):
        sent = {**fields, "rule": rule, "reply": reply, "status": status, "act": "try"}
        page = await browser.post("/topics/t/rule", sent)
        assert (page.status, bool(fault_at(page, field))) == (422, True), (rule, status)
        assert_is_harmless(page)
    assert served.admin.topics.get("t") == before


async def test_the_tried_rule_is_saved_and_nothing_else(served: Served) -> None:
    await add_topic(served, "t", secret=new_secret()[1], retry_if="{res.a}==1")
    before = served.admin.topics.get("t")
    browser = await served.visitor()
    fields = await form_at(browser, "/topics/t/rule")
    saved = await browser.post("/topics/t/rule", {**fields, "rule": "{res.b}==2", "act": "save"})
    assert (saved.status, saved.location) == (303, "/topics/t")
    after = served.admin.topics.get("t")
    assert before is not None and after is not None
    assert after.retry_if == "{res.b}==2" and after.secret == before.secret
    page = await browser.post("/topics/t/rule", {**fields, "rule": "{res.c}==3", "act": "save"})
    assert "Somebody else has changed it meanwhile to: {res.b}==2" in page.words
    assert (await browser.post("/topics/t/rule", {**fields_of(page), "act": "save"})).status == 303
    last = served.admin.topics.get("t")
    assert last is not None and last.retry_if == "{res.c}==3"


async def test_a_rule_is_tried_on_the_replies_of_the_past(jobs: Served) -> None:
    old = Elsewhere(jobs)
    for number in range(3):
        told = {"status": 200, "detail": "", "reply": f'{{"code":{number},"x":"{LINE[:8]}"}}'}
        await old.job("t", f"fine-{number}", State.DONE, **told)
    await old.dead("t", "ruled", status=200, detail=BY_RULE, reply='{"code":9}')
    await old.dead("t", "timed-out", status=None, detail="timed out after 3 s", reply="")
    await old.job("t", "long", State.DONE, status=200, detail="", reply='"' + "x" * 2000)
    await old.dead("u", "foreign", status=200, detail=BY_RULE, reply='{"code":9}')
    browser = await jobs.visitor()
    fields = await form_at(browser, "/topics/t/rule")
    assert fields["reply"].startswith('"xxx') and fields["status"] == "200", "the newest reply"

    async def past(rule: str) -> Reply:
        page = await browser.post("/topics/t/rule", {**fields, "rule": rule, "act": "past"})
        assert page.status == 200
        assert_is_harmless(page)
        return page

    page = await past("{res.code}==1")
    assert "From success into retry 1 From retry into success 1 Replies tried 4" in page.words
    assert "<bdi>fine-1</bdi>" in page.text and "<bdi>ruled</bdi>" in page.text
    assert "<bdi>fine-2</bdi>" not in page.text and "foreign" not in page.words
    assert "1 attempt failed for a reason that no rule decides" in page.words
    assert "1 reply is longer than the 1 KB that is kept" in page.words
    page = await past("{status}==200")
    assert "From success into retry 4 From retry into success 0 Replies tried 5" in page.words
    page = await past("")
    assert "From success into retry 0 From retry into success 1 Replies tried 5" in page.words
    await add_topic(jobs, "empty")
    fields = await form_at(browser, "/topics/empty/rule")
    page = await browser.post("/topics/empty/rule", {**fields, "act": "past"})
    assert "There is no reply to try it on." in page.words


def test_only_what_a_rule_decides_is_tried() -> None:
    def attempt(state: State, status: int | None, detail: str, reply: str) -> Attempt:
        return Attempt("x", 1, state, 1, status, detail, reply, 1)

    attempts = [
        attempt(State.DONE, None, "", ""),  # acknowledged by who leased it
        attempt(State.DONE, 200, "HTTP 200", "{}"),
        attempt(State.DONE, 200, "HTTP 200", "x" * REPLY_KEPT),
        attempt(State.DELAYED, 200, BY_RULE, '{"a":1}'),
        attempt(State.DEAD, 200, BY_RULE, '{"a":2}'),
        attempt(State.DELAYED, 200, "empty reply", ""),
        attempt(State.DEAD, None, "no answer", ""),
    ]
    past = back_test(parse_rule("{res.a}!=1"), attempts)
    assert (past.to_retry, past.to_ok) == ([attempts[1]], [attempts[3]])
    assert (past.tried, past.too_long, past.other) == (3, 1, 2)
    assert back_test(parse_rule("{status}==200"), attempts).too_long == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, ""), (0.0, "0"), (3, "3"), (0.1, "0.1"), (0.00001, "0.00001"), (1e6, "1000000")],
)
def test_numbers_are_written_as_a_person_would(number: float | None, text: str) -> None:
    assert number_text(number) == text
