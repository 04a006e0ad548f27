"""Somebody who has just started dq: from no topic to a delivered job, by mouse and by keyboard."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import Browser

from tests.browser.looks import flaws
from tests.browser.person import PATIENCE_S, Person, person_at
from tests.e2e.program import Program
from tests.support import wait_until_async
from tests.web.browser import PASSWORD

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.time_limit(180)]


async def test_from_no_topic_to_a_delivered_job(chromium: Browser, dq: Program) -> None:
    async with person_at(chromium, dq) as person:
        await person.log_in()
        began = time.monotonic()
        await person.press("Topics")
        await person.see("There is no topic yet")
        waited = time.monotonic()
        assert await flaws(person.page) == []
        began += time.monotonic() - waited
        await person.press("Make the first topic")
        await person.press("Make it")
        await person.press("Push a test job")
        await person.press("Push it")
        await person.see_after_reload("Attempt 1: done")
        # Five clicks; what is timed is dq and this machine, and people need some seconds too.
        assert time.monotonic() - began < 45
        assert person.asked == []


async def test_by_keyboard_alone(chromium: Browser, dq: Program) -> None:
    async with person_at(chromium, dq) as person:
        await person.go("/login")
        await _tab_to(person, "Password")
        await person.page.keyboard.type(PASSWORD)
        await person.page.keyboard.press("Enter")
        await person.see_heading("Overview")
        await person.page.keyboard.press("Tab")
        assert await _focused(person) == "Skip to the content"
        await _tab_to(person, "Topics")
        await person.page.keyboard.press("Enter")
        await person.see_heading("Topics")
        await _tab_to(person, "Make a topic", "Make the first topic")
        await person.page.keyboard.press("Enter")
        await person.see_heading("Make a topic")
        await _tab_to(person, "Topic")
        await person.page.keyboard.press("Control+A")
        await person.page.keyboard.type("by-keyboard")
        await _tab_to(person, "Callback")
        await person.page.keyboard.press("Control+A")
        await person.page.keyboard.type("http://127.0.0.1:9/")
        await _tab_to(person, "Make it")
        await person.page.keyboard.press("Enter")
        await person.see_heading("by-keyboard")


async def _focused(person: Person) -> str:
    """The name of what has the focus, as a label or its own text tells it."""
    name: str = await person.page.evaluate(
        """() => {
            const one = document.activeElement;
            const named = one.labels && one.labels.length ? one.labels[0] : one;
            return named.textContent.trim();
        }"""
    )
    return name


async def _tab_to(person: Person, *names: str) -> None:
    """Press Tab until something of one of these names has the focus, and shows it."""
    for _ in range(80):
        await person.page.keyboard.press("Tab")
        if await _focused(person) in names:
            style = "getComputedStyle(document.activeElement)"
            seen = await person.page.evaluate(f"{style}.outlineStyle + {style}.outlineWidth")
            assert seen != "none0px", f"nobody sees that {names} has the focus"
            return
    raise AssertionError(f"no Tab leads to {names} on {person.page.url}")


async def test_a_person_notices_what_must_not_be(chromium: Browser, dq: Program) -> None:
    """The other tests are worth something only if this is so."""
    async with person_at(chromium, dq) as person:
        await person.go("/login")
        await person.page.evaluate(
            """() => {
                document.body.setAttribute("style", "color: red");
                document.body.append(Object.assign(document.createElement("img"),
                    {src: "http://127.0.0.2:9/x.png"}));
                setTimeout(() => { throw new Error("thrown"); });
                console.warn("warned");
            }"""
        )
        wanted = ("style-src", "img-src", "script: thrown", "warning: warned", "another host")
        await wait_until_async(
            lambda: all(any(one in fault for fault in person.faults) for one in wanted), PATIENCE_S
        )
        with pytest.raises(AssertionError, match="warned"):
            person.check()
        person.faults.clear()
