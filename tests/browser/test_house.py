"""Keeping house in the admin: another node, a mail server, the looks of the pages."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.person import person_at
from tests.delivery.smtp_sink import SmtpSink
from tests.e2e.program import Program
from tests.e2e.test_admin import _push_until_held as push_until_held
from tests.e2e.test_nodes import valkeys
from tests.support import wait_until_async
from tests.web.browser import PASSWORD

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.time_limit(180)]


async def test_a_node_is_added_takes_jobs_and_is_drained(chromium: Browser, tmp_path: Path) -> None:
    environ = {"DQ_CONSUMERS": "1", "DQ_BUCKETS": "2", "DQ_ADMIN_PASSWORD": PASSWORD}
    with ExitStack() as stack:
        first, second = stack.enter_context(valkeys(tmp_path, 2))
        dq = stack.enter_context(Program(tmp_path, DQ_REDIS_URLS=first.url, **environ))
        dq.topic("t")
        async with person_at(chromium, dq) as person:
            await person.log_in()
            await person.press("Nodes")
            await person.fill("Name", "cellar")
            await person.fill("URL", "redis://127.0.0.1:1/0")
            person.expect_status(422)
            await person.press("Test and save")
            await expect(person.page.get_by_label("URL", exact=True)).to_have_attribute(
                "aria-invalid", "true"
            )
            await person.fill("URL", second.url)
            admin = dq.pids()["dq-admin"]
            await person.press("Test and save")
            cellar = person.page.get_by_role("region", name="cellar")
            await expect(cellar).to_contain_text("It is empty.")
            admin = await successor(dq, admin)
            await cellar.get_by_role("button", name="Let it take new jobs").click()
            await expect(cellar.get_by_role("button", name="Drain")).to_be_visible()
            await expect(cellar).not_to_contain_text("takes no new jobs")
            push_until_held(dq, second)
            await successor(dq, admin)
            await cellar.get_by_role("button", name="Drain").click()
            await expect(cellar).to_contain_text("takes no new jobs")
            await expect(cellar).to_contain_text("there still")
            assert len(person.asked) == 1 and "No new jobs go to" in person.asked[0]


async def successor(dq: Program, admin: int) -> int:
    """The process that takes over from `admin` with the nodes as they are now, when that one has
    gone: what is sent on a connection just as it is closed would show an error of the browser's."""
    await wait_until_async(
        lambda: not Path(f"/proc/{admin}").exists() and "dq-admin" in dq.pids(),
        20,
        "the next admin",
    )
    return dq.pids()["dq-admin"]


async def test_a_mail_server_is_named_and_tested(chromium: Browser, dq: Program) -> None:
    async with SmtpSink() as sink, person_at(chromium, dq) as person:
        await person.log_in()
        await person.press("Alerts")
        await person.see("There is none")
        await person.page.get_by_label("Kind", exact=True).select_option("smtp")
        await person.fill("Host", "127.0.0.1")
        await person.fill("Port", str(sink.port))
        await person.fill("Sender", "dq@example.com")
        await person.press("Save")
        await person.see(f"smtp://127.0.0.1:{sink.port}")
        await person.fill("Send a test mail to", "ops@example.com")
        await person.press("Send")
        await wait_until_async(lambda: len(sink.mails) == 1, 20, "the test mail")
        assert sink.mails[0].recipients == ["ops@example.com"]
        assert sink.mails[0].sender == "dq@example.com"
        sent = person.page.get_by_role("region", name="What was sent").first
        await expect(sent).to_contain_text("ops@example.com")
        await person.fill("Addresses, one a line", "night@example.com")
        await person.page.locator("form[action='/alerts/emails'] button").click()
        await expect(person.page.get_by_label("Addresses, one a line")).to_have_value(
            "night@example.com"
        )


async def test_colours_are_switched_and_stay(chromium: Browser, dq: Program) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(246, 247, 248)", "rgb(20, 24, 28)"
    async with person_at(chromium, dq) as person:
        await person.log_in()
        page = person.page
        assert await page.evaluate(ground) == light
        await page.emulate_media(color_scheme="dark")
        assert await page.evaluate(ground) == dark, "auto: as the system is"
        await page.emulate_media(color_scheme="light")
        for label, colour in (("Dark colours", dark), ("Light colours", light), ("Auto", light)):
            await page.get_by_title("Colours").click()
            await expect(page.get_by_title("Colours")).to_contain_text(label)
            assert await page.evaluate(ground) == colour
        await page.get_by_title("Colours").click()
        await person.press("Jobs")
        await person.see_heading("Jobs")
        assert await page.evaluate(ground) == dark
