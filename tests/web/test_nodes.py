"""Nodes in the admin: tested, saved, let take jobs, drained, removed; each only when it is safe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dq.core.node_file import AddedNode, NodeFile, read_node_file
from dq.queue.nodes import node_name
from dq.web.nodes import DRAINED_MS
from tests.valkey import Valkey
from tests.web.browser import Browser, Reply
from tests.web.conftest import Served
from tests.web.test_pages import HOSTILE, assert_is_harmless


@pytest.fixture(scope="module")
def second() -> Iterator[Valkey]:
    server = Valkey().start()
    yield server
    server.stop()


@pytest.fixture
def other(second: Valkey) -> str:
    """The URL of an empty Redis that is no node."""
    with second.client() as client:
        client.flushall()
        client.config_set("maxmemory-policy", "noeviction")
    return second.url


def _file(served: Served) -> NodeFile:
    return read_node_file(served.settings.data_dir / "added_nodes.json")


async def _add(browser: Browser, url: str, title: str = "second") -> Reply:
    return await browser.post("/nodes", {"title": title, "url": url})


async def test_a_node_is_shown_with_its_figures(served: Served) -> None:
    await served.push("t", "1", delay_ms=60_000)
    page = await (await served.visitor()).see("/nodes", "All unfinished 1")
    assert "Valkey" in page.words and "no limit set" in page.words


async def test_a_redis_is_saved_after_it_answered_and_takes_no_jobs_at_first(
    served: Served, other: str
) -> None:
    browser = await served.visitor()
    reply = await _add(browser, other)
    assert reply.status == 303, reply.words
    page = await browser.get("/nodes")
    assert "answers and is saved" in page.words
    page = await browser.see("/nodes", "being taken up", "takes no new jobs")
    assert _file(served).added == (AddedNode("second", other),)
    assert list(_file(served).draining) == [node_name(other)]
    assert await served.admin.node_store.read() == _file(served)
    early = await browser.post("/nodes/open", {"node": node_name(other)})
    assert (early.status, "do not know it yet" in early.words) == (409, True)
    again = await _add(browser, other)
    assert (again.status, "is saved already" in again.words) == (422, True)
    assert (await browser.post("/nodes/remove", {"node": node_name(other)})).status == 303
    assert _file(served) == NodeFile()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is no Redis URL"),
        ("http://h/", "is no Redis URL"),
        ("redis://[::1", "Invalid IPv6 URL"),
        ("redis://127.0.0.1:1/", "onnect"),
        ("redis+sentinel://127.0.0.1:1", "needs the service"),
    ],
)
async def test_what_is_no_redis_is_refused_in_words(served: Served, url: str, words: str) -> None:
    browser = await served.visitor()
    reply = await _add(browser, url)
    assert (reply.status, words in reply.words) == (422, True), reply.words
    assert _file(served) == NodeFile()


async def test_a_redis_that_would_lose_jobs_or_mix_them_up_is_refused(
    served: Served, second: Valkey, other: str
) -> None:
    browser = await served.visitor()
    own = served.settings.redis_urls[0]
    assert "is a node already" in (await _add(browser, own)).words
    same = own.replace("unix:///", "unix:///./")
    assert "same server as the node" in (await _add(browser, same)).words
    with second.client() as client:
        client.hset("dq:node", "buckets", "1")
        client.hset("{dq0}:jobs", "x", "y")
        assert "another dq works with it" in (await _add(browser, other)).words
        client.flushall()
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert "throws keys away" in (await _add(browser, other)).words
        assert client.keys() == []
    assert _file(served) == NodeFile()


async def test_a_wrong_password_is_told_and_never_shown(
    served: Served, second: Valkey, other: str
) -> None:
    browser = await served.visitor()
    with second.client() as client:
        client.acl_setuser("dq", enabled=True, passwords=["+hunter2"], keys="*", commands=["+@all"])
    wrong = await _add(browser, other.replace("unix://", "unix://dq:mistyped@"))
    assert (wrong.status, "invalid username-password" in wrong.words) == (422, True), wrong.words
    right = await _add(browser, other.replace("unix://", "unix://dq:hunter2@"))
    assert right.status == 303, right.words
    page = await browser.see("/nodes", "being taken up")
    assert "hunter2" not in page.text and "unix://dq@" in page.words
    assert "hunter2" not in str((await served.admin.store.changes()).changes)


async def test_the_only_node_is_not_drained(served: Served) -> None:
    browser = await served.visitor()
    name = served.admin.nodes.all[0].name
    reply = await browser.post("/nodes/drain", {"node": name})
    assert (reply.status, "only node" in reply.words) == (409, True)
    assert (await browser.post("/nodes/drain", {"node": "x"})).status == 404
    reply = await browser.post("/nodes/remove", {"node": name})
    assert (reply.status, "DQ_REDIS_URLS" in reply.words) == (409, True)


async def _own_as_added(served: Served) -> str:
    """The node under test as one that was added here, beside another that takes the jobs."""
    node = served.admin.nodes.all[0]
    added = (AddedNode("first", node.url), AddedNode("second", "redis://127.0.0.1:1"))
    await served.admin.node_store.put(NodeFile(added))
    return node.name


async def test_a_node_is_drained_and_removed_when_it_is_empty(served: Served) -> None:
    name = await _own_as_added(served)
    await served.push("t", "1", delay_ms=60_000)
    browser = await served.visitor()
    early = await browser.post("/nodes/remove", {"node": name})
    assert (early.status, "Drain it first" in early.words) == (409, True)
    assert (await browser.post("/nodes/drain", {"node": name})).status == 303
    await browser.see("/nodes", "1 job waits there still")
    early = await browser.post("/nodes/remove", {"node": name})
    assert (early.status, "Drain it first" in early.words) == (409, True)
    served.turn_ms(DRAINED_MS)
    full = await browser.post("/nodes/remove", {"node": name})
    assert (full.status, "1 jobs wait there still" in full.words) == (409, True)
    await served.admin.schedule.cancel("t", "1")
    assert (await browser.post("/nodes/remove", {"node": name})).status == 303
    assert [one.title for one in _file(served).added] == ["second"]
    assert _file(served).draining == {}
    actions = [one.action for one in (await served.admin.store.changes(target=name)).changes]
    assert actions == ["node.remove", "node.drain"]


async def test_a_drained_node_can_be_let_take_jobs_again(served: Served) -> None:
    name = await _own_as_added(served)
    browser = await served.visitor()
    await browser.post("/nodes/drain", {"node": name})
    assert list(_file(served).draining) == [name]
    assert (await browser.post("/nodes/open", {"node": name})).status == 303
    assert _file(served).draining == {}


async def test_with_sql_away_nodes_are_shown_and_not_changed(served: Served) -> None:
    browser = await served.visitor()
    (served.settings.data_dir / "dq.db").unlink()
    await browser.see("/nodes", "SQL is away", "Valkey")
    reply = await browser.post("/nodes/drain", {"node": served.admin.nodes.all[0].name})
    assert reply.status == 503


async def test_a_hostile_name_is_only_text(served: Served, other: str) -> None:
    browser = await served.visitor()
    assert (await _add(browser, other, HOSTILE[:60])).status == 303
    assert_is_harmless(await browser.see("/nodes", "<script>alert(1)</script>"))
    assert_is_harmless(await _add(browser, "redis://" + HOSTILE, HOSTILE))
