"""Every test here runs on both event loops: workers use uvloop, errors and TLS differ in each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from dq.core.callback import CallbackRequest
from dq.core.networks import DEFAULT_DENY
from dq.delivery.http import Caller
from dq.delivery.plain import Target
from tests.delivery.hostile import HostileServer


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer() as server:
        yield server


class OverAiohttp(Caller):
    """Sends plain requests, too, as those are sent that are more than plain."""

    def _target_of(self, request: CallbackRequest) -> Target | None:
        return None


MakeCaller = Callable[..., Caller]


@pytest.fixture(params=[Caller, OverAiohttp], ids=["pool", "aiohttp"])
async def make_caller(request: pytest.FixtureRequest) -> AsyncIterator[MakeCaller]:
    """Both ways a plain request can go must keep the same promises."""
    made: list[Caller] = []

    def make(*arguments: Any, **settings: Any) -> Caller:
        made.append(request.param(*arguments, **settings))
        return made[-1]

    yield make
    for caller in made:
        await caller.close()


@pytest.fixture
async def caller(make_caller: MakeCaller) -> Caller:
    return make_caller(DEFAULT_DENY, limit=20)
