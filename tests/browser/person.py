"""Somebody at the admin with a real browser: sees the page, clicks, types, and notices everything.

async with person_at(chromium, dq) as person:
    await person.log_in()
    await person.go("/topics")
    await person.press("Make a topic")

Whatever a test is about, its person must have met no error or warning in the console, no error of
a script, no offence against the content security policy (the console tells of it), and no request
to anything but the admin.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Dialog, Locator, Page, Request, expect

from tests.e2e.program import Program
from tests.web.browser import PASSWORD

PATIENCE_S = 30.0
"""How long a page may take to show what it should: two busy cores are slow."""

expect.set_options(timeout=PATIENCE_S * 1000)

_STATUS = re.compile(r"the server responded with a status of (\d+)")


class Person:
    """One visitor of the admin at `base`, in a tab of its own. `asked` are the questions that a
    page asked before a button of no return; each was answered with yes."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.asked: list[str] = []
        self.faults: list[str] = []
        self._expected: set[int] = set()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", self._watch)
        page.on("dialog", self._confirm)

    async def go(self, path: str, status: int = 200) -> None:
        """Open a page by its address; it must answer with `status`."""
        self.expect_status(status)
        reply = await self.page.goto(self.base + path)
        assert reply is not None and reply.status == status, f"{path}: {reply}"

    async def log_in(self, password: str = PASSWORD) -> None:
        await self.go("/login")
        await self.page.get_by_label("Password").fill(password)
        await self.press("Log in")
        await self.see_heading("Overview")

    def named(self, name: str) -> Locator:
        """The buttons and links of exactly this name."""
        button = self.page.get_by_role("button", name=name, exact=True)
        return button.or_(self.page.get_by_role("link", name=name, exact=True))

    async def press(self, name: str) -> None:
        """Click the first button or link of this name."""
        await self.named(name).first.click()

    async def fill(self, label: str, text: str) -> None:
        await self.page.get_by_label(label, exact=True).first.fill(text)

    async def see_heading(self, text: str) -> None:
        await expect(self.page.locator("h1")).to_contain_text(text)

    async def see(self, *texts: str) -> None:
        """Wait until the page shows all of this; it is not loaded again."""
        for text in texts:
            await expect(self.page.get_by_text(text).locator("visible=true").first).to_be_visible()

    async def see_figure(self, name: str, value: str) -> None:
        """Wait until a figure shows a value; the page is not loaded again."""
        name_of = self.page.locator("dt", has_text=re.compile(rf"^\s*{re.escape(name)}\s*$"))
        figure = self.page.locator(".figure", has=name_of)
        await expect(figure.locator("dd")).to_have_text(re.compile(rf"^\s*{re.escape(value)}\b"))

    async def see_after_reload(self, text: str) -> None:
        """Load the page again until it shows this: for pages that are not live."""
        place = self.page.get_by_text(text).locator("visible=true")
        until = time.monotonic() + PATIENCE_S
        while not await place.count():
            assert time.monotonic() < until, f"{self.page.url} never shows {text!r}"
            await asyncio.sleep(0.1)
            await self.page.reload()

    def expect_status(self, status: int) -> None:
        """An answer with this status is no fault, though the console tells of it."""
        self._expected.add(status)

    def check(self) -> None:
        """Fail for whatever was noticed."""
        assert not self.faults, self.faults

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        found = _STATUS.search(message.text)
        if found is None or int(found[1]) not in self._expected:
            self.faults.append(f"console {message.type}: {message.text} {message.location}")

    def _watch(self, request: Request) -> None:
        if not request.url.startswith(self.base + "/"):
            self.faults.append(f"a request to another host: {request.url}")

    async def _confirm(self, dialog: Dialog) -> None:
        self.asked.append(dialog.message)
        await dialog.accept()


def base_of(dq: Program) -> str:
    return f"http://127.0.0.1:{dq.environ['DQ_ADMIN_PORT']}"


@asynccontextmanager
async def person_at(chromium: Browser, dq: Program, **context: Any) -> AsyncIterator[Person]:
    """A person with a browser that nobody used before. `context` is what Playwright's new_context
    takes: locale, viewport, color_scheme."""
    given = {"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, **context}
    opened = await chromium.new_context(**given)
    opened.set_default_timeout(PATIENCE_S * 1000)
    try:
        page = await opened.new_page()
        person = Person(page, base_of(dq))
        try:
            yield person
        except Exception as error:
            words = " ".join((await page.locator("body").inner_text()).split())
            error.add_note(f"{page.url} said: {words[:3000]}; noticed: {person.faults}")
            raise
        person.check()
    finally:
        await opened.close()
