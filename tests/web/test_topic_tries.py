"""Trying a topic: test callbacks, test jobs, rules on a sample and on the past."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dq.core.outcome import BY_RULE
from dq.core.rule import parse_rule
from dq.db.attempts import Attempt
from dq.db.rows import State
from dq.delivery.attempt import REPLY_KEPT, call_and_judge
from dq.web import topic_page
from dq.web.topic_backtest import back_test
from dq.web.topic_form import new_secret, number_text
from tests.e2e.receiver import Call, Receiver
from tests.web.browser import Reply
from tests.web.conftest import Served
from tests.web.jobs_at import Elsewhere, journaling
from tests.web.test_pages import HOSTILE, Tags, assert_is_harmless
from tests.web.topics_at import (
    LINE,
    add_topic,
    fault_at,
    fields_of,
    form_at,
)


@pytest.fixture
async def jobs(served: Served) -> AsyncIterator[Served]:
    """The admin with a journal that is kept up to date."""
    async with journaling(served):
        await add_topic(served, "t")
        yield served


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
