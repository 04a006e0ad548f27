"""How a page looks to those who see, hear or point less well, and on a phone.

axe-core finds what offends against WCAG 2.1, level A and AA. In dark colours only the rules about
colours are asked again: nothing else changes there.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import axe_playwright_python  # type: ignore[import-untyped]
from playwright.async_api import Page, ViewportSize

PHONE: ViewportSize = {"width": 360, "height": 740}

_ALL = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
_RUN = """async (which) => {
    const found = await axe.run(document, {runOnly: which, resultTypes: ["violations"]});
    return found.violations;
}"""

_WIDER = """() => {
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= room) return [];
    const over = [...document.querySelectorAll("body *")].filter(
        (one) => one.getBoundingClientRect().right > room + 1 && !one.closest(".scroll, .tabs"));
    return ["wider than a phone", ...over.map((one) => one.outerHTML.slice(0, 120)).slice(-3)];
}"""


async def flaws(page: Page) -> list[str]:
    """What is wrong with the looks of this page, in light, in dark, and on a phone."""
    before = page.viewport_size
    assert before is not None
    found = [f"light: {one}" for one in await _offences(page, _ALL)]
    await page.emulate_media(color_scheme="dark")
    found += [f"dark: {one}" for one in await _offences(page, _COLOURS)]
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(PHONE)
    found += await too_wide(page)
    await page.set_viewport_size(before)
    return found


async def too_wide(page: Page) -> list[str]:
    """What is wider than the screen, with everything that can be opened open; [] when nothing."""
    for details in await page.locator("details:not([open]) > summary").all():
        await details.click()
    found: list[str] = await page.evaluate(_WIDER)
    return found


async def _offences(page: Page, which: dict[str, Any]) -> list[str]:
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_axe())
    found: list[dict[str, Any]] = await page.evaluate(_RUN, which)
    return [
        f"{one['id']}: {node['html'][:150]} ({node['failureSummary']})"
        for one in found
        for node in one["nodes"]
    ]


@cache
def _axe() -> str:
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
