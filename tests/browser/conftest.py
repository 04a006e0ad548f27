"""A browser and a dq for each module; without Chromium its tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.web.browser import PASSWORD


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium: no download, and what people really use."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine; as root: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """What a module's dq is started with; a module may have its own."""
    return {"DQ_RETRY_UNIT": "0.05"}


@pytest.fixture(scope="module")
def dq(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str]
) -> Iterator[Program]:
    """Asks for the browser first: without one, there is nothing to start."""
    few = {"DQ_CONSUMERS": "1", "DQ_BUCKETS": "2", "DQ_ADMIN_PASSWORD": PASSWORD}
    with Program(tmp_path_factory.mktemp("dq"), **few, **environ) as program:
        yield program
