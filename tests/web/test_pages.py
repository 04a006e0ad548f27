"""What holds for every page: who may see it, what it lets in, and that it shows texts as texts."""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import AsyncExitStack
from html.parser import HTMLParser

import pytest

from dq.core.topic import Topic
from dq.db.admin_store import Change
from dq.queue.inspect import BucketLook, NodeLook, Server
from dq.web.deps import Instance, ProcessLine
from dq.web.headers import CONTENT_SECURITY_POLICY
from dq.web.overview import Snapshot, problems
from tests.web.browser import Reply
from tests.web.conftest import Served
from tests.web.jobs_at import add_topic

PAGES = ("/", "/topics", "/jobs", "/jobs/new", "/dead", "/nodes", "/alerts", "/replay", "/access")
TOPIC_PAGES = ("/topics", "/topics/t")
FOR_ADMINS = ("/topics/-/new", "/topics/t/edit", "/topics/t/rule", "/topics/t/delete")
FOR_ALL = ("/login", "/logout", "/preferences")
HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{7*7}}\u202e"


class Tags(HTMLParser):
    """Every tag with its attributes, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def named(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.all if tag in names]


def assert_is_harmless(reply: Reply) -> None:
    tags = Tags(reply.text)
    assert all(one.get("src", "").startswith("/static/") for one in tags.named("script", "img"))
    assert tags.named("style", "iframe", "object", "base") == []
    for _, attributes in tags.all:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    for link in tags.named("a", "link"):
        assert str(link.get("href", "/"))[0] in "/#?", link


def routes_of(served: Served, method: str) -> list[str]:
    """The addresses of all routes; a part of a path that is a name becomes `x`."""
    return sorted(
        {
            re.sub(r"\{[^}]*\}", "x", route.resource.canonical)
            for route in served.app.router.routes()
            if route.method == method and route.resource is not None
        }
    )


async def topic_pages(served: Served, user: str = "admin") -> tuple[str, ...]:
    """The pages of a topic that is made now, those that the user may see."""
    await add_topic(served, "t")
    return TOPIC_PAGES if user == "viewer" else TOPIC_PAGES + FOR_ADMINS


@pytest.mark.parametrize("user", ["admin", "viewer"])
async def test_every_page_is_there(served: Served, user: str) -> None:
    browser = await served.visitor(user)
    for path in [*PAGES, *await topic_pages(served, user)]:
        reply = await browser.get(path)
        assert reply.status == 200, path
        assert reply.text.count('aria-current="page"') == 1, path
        assert_is_harmless(reply)


async def test_no_page_grows_with_the_number_of_topics(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Topic(topic=f"topic-with-a-longer-name-{number:05}") for number in range(10_000)]
    monkeypatch.setattr(served.admin.topics, "all", lambda: many)
    browser = await served.visitor()
    for path in PAGES:
        assert len((await browser.get(path)).text) < 80_000, path


async def test_every_input_has_a_label_and_every_page_one_heading(served: Served) -> None:
    browser = await served.visitor()
    for path in [*PAGES, *await topic_pages(served)]:
        tags = Tags((await browser.get(path)).text)
        labelled = {label.get("for") for label in tags.named("label")}
        for one in tags.named("input", "select", "textarea"):
            is_named = one.get("type") == "hidden" or one.get("id") in labelled
            assert is_named or one.get("aria-label"), (path, one)
        assert len(tags.named("h1")) == 1, path
        assert tags.all[0][0] == "html" and tags.all[0][1]["lang"] == "en"


async def test_a_viewer_may_look_at_all_and_change_nothing(served: Served) -> None:
    viewer = await served.visitor("viewer")
    forms = [path for path in routes_of(served, "POST") if path not in FOR_ALL]
    assert forms
    for path in forms:
        reply = await viewer.post(path, {"user": "viewer", "password": "x" * 9})
        assert (reply.status, "change nothing" in reply.words) == (403, True), path
    for path in [*PAGES, *await topic_pages(served, "viewer")]:
        text = (await viewer.get(path)).text
        actions = {one.get("action") for one in Tags(text).named("form")} - {None}
        sent = {
            one.get("action") for one in Tags(text).named("form") if one.get("method") == "post"
        }
        assert sent <= set(FOR_ALL), (path, actions)


async def test_a_form_without_its_token_is_refused_with_words(served: Served) -> None:
    browser, other = await served.visitor(), await served.visitor()
    for path in routes_of(served, "POST"):
        for token in ("", "0" * 64, other.csrf):
            reply = await browser.post(path, {"csrf": token})
            assert reply.status == 403, path
            assert "not made for this session" in reply.words
    reply = await browser.send("POST", "/preferences", data={"language": "zh"})
    assert reply.status == 403


async def test_only_forms_of_the_admin_itself_are_taken(served: Served) -> None:
    browser = await served.visitor()
    own = served.base
    for headers, status in (
        ({"Origin": own}, 303),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": own}, 403),
    ):
        assert (await browser.post("/preferences", **headers)).status == status, headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8088", 303),
        ("127.0.0.1", 303),
        ("[::1]:8088", 303),
        ("10.1.2.3:8088", 303),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8088", 403),
        ("", 403),
    ],
)
async def test_a_foreign_host_is_refused(served: Served, host: str, status: int) -> None:
    """A web page may point a name of its own at this machine."""
    reply = await served.browser().get("/", Host=host)
    assert reply.status == status
    assert (await served.browser().get("/healthz", Host=host)).status in (200, 403)


async def test_every_answer_keeps_foreign_scripts_out(served: Served) -> None:
    browser = await served.visitor()
    paths = (*PAGES, *await topic_pages(served), "/nope", "/login", "/healthz")
    for reply in [await browser.get(path) for path in paths]:
        assert reply.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "same-origin"
        assert reply.headers["Cache-Control"] == "no-store"
    refused = await browser.send("DELETE", "/")
    assert refused.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY


async def test_static_files_change_their_address_with_their_content(served: Served) -> None:
    browser = served.browser()
    page = await browser.get("/login")
    addresses = set(re.findall(r'"(/static/[^"]+)"', page.text))
    assert len(addresses) == 3
    for address in addresses:
        reply = await browser.get(address)
        assert reply.status == 200
        assert "immutable" in reply.headers["Cache-Control"]
    for address in ("/static/admin.css", "/static/..%2f..%2fapp.py", "/static/x.js"):
        assert (await browser.get(address)).status == 404


async def test_what_goes_wrong_is_told_in_words(served: Served) -> None:
    browser = await served.visitor()
    missing = await browser.get("/topics/" + "x" * 10 + "/nothing")
    assert (missing.status, "Nothing is here" in missing.words) == (404, True)
    assert (await browser.send("DELETE", "/topics", data={"csrf": browser.csrf})).status == 405
    form = io.BytesIO(f"csrf={browser.csrf}&back={'x' * 8_000_000}".encode())
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    large = await browser.send("POST", "/preferences", data=form, headers=kind)
    assert (large.status, "Too large" in large.words) == (413, True)


async def test_hostile_texts_are_shown_as_texts(served: Served) -> None:
    await served.admin.store.add_change(
        Change(1, HOSTILE, HOSTILE[:20], HOSTILE, HOSTILE, HOSTILE, HOSTILE[:40])
    )
    browser = await served.visitor()
    reply = await browser.get("/access")
    assert_is_harmless(reply)
    assert reply.words.count("<script>alert(1)</script>") >= 4
    assert "{{7*7}}" in reply.words
    for path in (
        "/nope/<script>",
        "/access?target=%3Cscript%3E&cursor=1",
        "/login?next=/%22%3E%3Cb",
    ):
        assert_is_harmless(await browser.get(path))
    stranger = served.browser()
    assert_is_harmless(await stranger.log_in(HOSTILE, HOSTILE, to=HOSTILE))


async def test_what_a_cookie_claims_was_said_is_only_text(served: Served) -> None:
    claim = (
        "%7B%22text%22%3A%22%3Cscript%3E%7Bx.__class__%7D%22%2C%22values%22%3A%7B%22x%22%3A1%7D%7D"
    )
    token = (await served.visitor()).cookie("dq_session")
    for value in (claim, "%7B", "x" * 3000, '%7B"text"%3A"%7Bmissing%7D"%7D'):
        browser = served.browser(Cookie=f"dq_session_8088={token}; dq_said={value}")
        reply = await browser.get("/access")
        assert reply.status == 200
        assert_is_harmless(reply)


async def test_a_bad_cursor_is_told(served: Served) -> None:
    browser = await served.visitor()
    reply = await browser.get("/access?cursor=x")
    assert reply.status == 422 and "cursor" in reply.words


async def test_the_overview_shows_jobs_nodes_and_processes(served: Served) -> None:
    await served.push("t", "now")
    await served.push("t", "later", delay_ms=570_000)
    browser = await served.visitor()
    await browser.see("/", "Delayed 1 Ready 1 Running 0", "dq-master", "Valkey")
    await browser.see("/", "1 job in all", "1 job in minute 10 from now")


async def test_a_badge_is_there_only_when_something_is_wrong(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await served.visitor()
    assert 'class="count"' not in (await browser.get("/access")).text

    async def gone() -> list[NodeLook]:
        return [NodeLook("redis://<b>", away="connect <i>refused")]

    monkeypatch.setattr(served.admin.inspector, "look", gone)
    async with AsyncExitStack() as stack:
        other = await served.serve_again(stack)
        browser = await served.visitor(base=other)
        reply = await browser.see(
            "/",
            "Node redis://<b> does not answer: connect <i>refused",
            "Nodes 1 (nodes that do not answer: 1)",
        )
    assert_is_harmless(reply)


def test_a_snapshot_adds_up_what_answers() -> None:
    nodes = [NodeLook("a", server=Server()), NodeLook("b", away="gone")]
    seen = Snapshot(5, Instance("h"), nodes, [0] * 60, 100)
    assert [node.name for node in seen.answering] == ["a"]
    assert seen.dead_text == "99+"


def test_every_trouble_is_a_problem() -> None:
    lost = [ProcessLine("dq-timer-0", 1, 0, 3, "dead")]
    bucket = BucketLook(0, "restoring", 0, 0, 0, 0, 1)
    nodes = [NodeLook("a", away="gone"), NodeLook("b", buckets=[bucket])]
    seen = Snapshot(9_000, Instance("h", "1", "", "no", lost), nodes, [], None, "gone")
    texts = [problem.text.partition("{")[0] for problem in problems(seen)]
    assert texts == [
        "Node ",
        "Node ",
        "SQL is away: ",
        "",
        "The last reload was refused: ",
        "Due jobs wait for ",
    ]
    assert problems(Snapshot(0, Instance("h"))) == []


async def test_sql_that_hangs_holds_up_no_page(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> int:
        return await asyncio.Event().wait()

    browser = await served.visitor()
    monkeypatch.setattr(served.admin.store, "count_jobs", hang)
    async with AsyncExitStack() as stack:
        browser.base = await served.serve_again(stack)
        await browser.see("/", "Valkey", "Dead –")
        assert (await browser.get("/topics")).status == 200
