"""The page about dead jobs comes at once: what it has not found by then, it says how to find."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dq.db import dead_letters
from dq.web import dead
from tests.web.browser import Reply
from tests.web.conftest import Served
from tests.web.jobs_at import Elsewhere, add_topic, journaling
from tests.web.test_dead import carry_out
from tests.web.test_pages import Tags


@pytest.fixture
async def hurried(served: Served, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """There is time for five deaths a look."""
    monkeypatch.setattr(dead_letters, "SCAN_ROWS", 5)
    for name in ("LIST_BUDGET_MS", "SAMPLE_BUDGET_MS", "COUNT_BUDGET_MS"):
        monkeypatch.setattr(dead, name, 0)
    async with journaling(served):
        await add_topic(served, "t")
        old = Elsewhere(served)
        for number in range(22):
            await old.dead("t", f"j{number}", reply="needle" if number == 1 else "hay")
        yield served


def older_of(page: Reply) -> list[str]:
    """The address behind Older, if it is there."""
    links = Tags(page.text).named("a")
    return [link["href"] or "" for link in links if link.get("rel") == "next"]


async def test_a_list_that_has_no_time_leads_on_to_the_end(hurried: Served) -> None:
    browser = await hurried.visitor()
    page = await browser.get("/dead?q=needle")
    assert "Nothing in the stretch that was looked through." in page.words
    for _ in range(4):
        assert "<bdi>j1</bdi>" not in page.text
        (older,) = older_of(page)
        page = await browser.get(older)
        assert page.status == 200
    assert "<bdi>j1</bdi>" in page.text
    assert older_of(page) == []


async def test_a_question_about_all_says_how_many_there_are_at_least(hurried: Served) -> None:
    browser = await hurried.visitor()
    page = await browser.get("/dead/confirm?act=redrive&q=hay")
    assert "At least 10 dead jobs will be put back on the schedule." in page.words
    assert page.text.count('href="/jobs/t/j') == 5, "those of the first look are the sample"


async def test_what_no_look_has_found_yet_is_worked_on_all_the_same(hurried: Served) -> None:
    browser = await hurried.visitor()
    page = await browser.get("/dead/confirm?act=redrive&q=needle")
    assert "None was found in the time there is for a look." in page.words
    done = await carry_out(browser, "/dead/confirm?act=redrive&q=needle")
    assert "Redriven 1" in done.words
    page = await browser.get("/dead/confirm?act=redrive&topic=never&q=needle")
    assert (page.status, page.location) == (303, "/dead?topic=never&q=needle")
