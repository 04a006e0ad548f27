"""Every test here runs on both event loops: workers use uvloop, errors and TLS differ in each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from dq.core.networks import DEFAULT_DENY
from dq.delivery.http import Caller
from tests.delivery.hostile import HostileServer


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer() as server:
        yield server


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller(DEFAULT_DENY, limit=20)
    yield caller
    await caller.close()
