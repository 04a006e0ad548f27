"""What holds for every page: readable for all, no wider than a phone, whole in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, expect

from tests.browser.looks import PHONE, flaws, too_wide
from tests.browser.person import person_at
from tests.e2e.program import Program
from tests.e2e.receiver import Call, Receiver
from tests.support import wait_until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.time_limit(180)]

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic form": "/topics/-/new",
    "topic": "/topics/orders",
    "topic change": "/topics/orders/edit",
    "topic delete": "/topics/orders/delete",
    "rule": "/topics/orders/rule",
    "jobs": "/jobs",
    "job waiting": "/jobs/orders/waiting",
    "job dead": "/jobs/orders/dead-1",
    "new job": "/jobs/new",
    "cancel many": "/jobs/confirm",
    "dead": "/dead",
    "redrive many": "/dead/confirm?act=redrive",
    "nodes": "/nodes",
    "alerts": "/alerts",
    "replay": "/replay?from=2020-01-01T00:00",
    "access": "/access",
}
LONG = "a-very-long-name-without-any-place-to-break-it." * 2
CALLBACK = "https://shop.example.com/" + "callbacks/" * 12


@pytest.fixture(scope="module")
def filled(dq: Program) -> Iterator[Program]:
    """With a bit of everything to show: long names, a job that waits, one that is dead."""

    def answer(call: Call) -> tuple[int, bytes]:
        return (
            (500, b"<h1>" + b"broken" * 60)
            if "dead" in call.headers.get("dq-id", "")
            else (200, b'{"code":200}')
        )

    with Receiver(answer) as receiver:
        orders = {
            "callback": receiver.url,
            "name": "订单",
            "retry_if": "{res.code}!=200",
            "max_retries": 1,
            "email": ["shop@example.com"],
            "headers": {"X-Shop": "x" * 90},
        }
        assert dq.call("PUT", "/v1/topics/orders", orders).status == 201
        dq.topic(LONG, callback=CALLBACK)
        dq.push("orders", "waiting", {"order": "x" * 500}, delay=1800, key="k" * 200)
        for number in range(3):
            dq.push("orders", f"dead-{number}", {"order": number})
            dq.push("orders", f"done-{number}", {"order": number})
        ends = {f"{end}-{number}": end for number in range(3) for end in ("dead", "done")}
        wait_until(lambda: {id_: dq.state("orders", id_) for id_ in ends} == ends, 30)
        yield dq


async def test_all_can_read_every_page_on_every_screen(chromium: Browser, filled: Program) -> None:
    found: dict[str, list[str]] = {}

    async def look(name: str) -> None:
        found[name] = await flaws(person.page)

    async with person_at(chromium, filled, reduced_motion="reduce") as person:
        await person.go("/login")
        await look("log-in")
        person.expect_status(401)
        await person.page.get_by_label("Password").fill("wrong")
        await person.press("Log in")
        await person.see("The name or the password is wrong.")
        await look("log-in refused")
        await person.log_in()
        for name, path in PAGES.items():
            await person.go(path)
            await look(name)
        await person.go("/topics/orders")
        await person.press("Call back now")
        await person.see_heading("Test callback")
        await look("test callback")
        await person.go("/topics/orders/rule")
        await person.page.locator("button[value=past]").click()
        await person.see("On the past")
        await look("rule tried")
        await person.go("/topics/-/new")
        person.expect_status(422)
        await person.fill("Topic", "no name")
        await person.press("Make it")
        await expect(person.page.get_by_label("Topic", exact=True)).to_have_attribute(
            "aria-invalid", "true"
        )
        await look("topic form refused")
        await person.go("/topics/nothing", status=404)
        await look("not found")
    wrong = [f"{name}: {one}" for name, flaws in found.items() for one in flaws]
    assert not wrong, "\n".join(wrong)


# What is called the same in Chinese, or what this data and this machine are called.
SAME = set(
    re.findall(
        r"\S+",
        "dq URL id POST GET json form pid admin viewer Retry-After RFC YYYY-MM-DD HH MM SS ms KB"
        " MB Valkey master embedded orders waiting dead-1 job topic put log-in",
    )
)
PROCESSES = {f"dq-{name}" for name in ("admin", "journal", "redis-checker", "consumer-0")}
CHINESE = re.compile(r"[\u4e00-\u9fff]")
SENTENCE = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")


def _is_english(text: str) -> bool:
    """Names and code stand in Chinese sentences too; two plain words in a row do not."""
    if CHINESE.search(text):
        text = text.replace("true false null", "")
        return SENTENCE.search(text) is not None
    return bool(set(re.findall(r"[A-Za-z][\w-]+", text)) - SAME - PROCESSES)


async def test_chinese_is_whole_and_fits_a_phone(chromium: Browser, filled: Program) -> None:
    left: dict[str, list[str]] = {}
    async with person_at(chromium, filled, viewport=PHONE, has_touch=True) as person:
        await person.log_in()
        await person.press("中文")
        await person.see_heading("总览")
        for name, path in PAGES.items():
            await person.go(path)
            assert await person.page.locator("html").get_attribute("lang") == "zh-CN"
            left[name] = [text for text in await person.page.evaluate(_WORDS) if _is_english(text)]
            left[name] += await too_wide(person.page)
        await person.press("English")
        await person.see_heading("Access")
    wrong = [f"{name}: {one}" for name, texts in left.items() for one in texts]
    assert not wrong, "\n".join(wrong)


# Headings, labels, buttons, notes: everything but what people wrote and the machine measured.
_WORDS = """() => {
    const own = "bdi, code, pre, textarea, option, datalist, script, .mono, .address, .brand, " +
        "[lang=en], .who, .story .hint, td.name, td.long, td.why, td.preview, td.words, tbody th";
    const words = [document.title.split(" · ")[0]];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        if (node.textContent.trim() && !node.parentElement.closest(own))
            words.push(node.textContent.trim());
    }
    document.querySelectorAll("[aria-label]:not(.brand)").forEach(
        (one) => words.push(one.getAttribute("aria-label")));
    return words;
}"""
