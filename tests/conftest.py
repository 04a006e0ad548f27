"""For all tests: none may hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

TIME_LIMIT_S = 60.0


class TookTooLong(BaseException):
    """Nothing that is tested takes it for a timeout of its own."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that takes longer than its limit fails where it stands, fixtures included."""
    marker = item.get_closest_marker("time_limit")
    limit_s = float(marker.args[0]) if marker else TIME_LIMIT_S

    def fail(_: int, __: FrameType | None) -> None:
        raise TookTooLong(f"{item.name} took longer than {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
