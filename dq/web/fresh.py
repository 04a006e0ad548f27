"""A value that is looked up at most every so often, however many ask, and never waited for long.

One look-up at a time; whoever asks while it takes too long gets the value of before, and the
look-up goes on. So a page can show what a dead server would have said, and still be there at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from dq.core import clock

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Fresh(Generic[T]):
    """What `look` gives, kept for `keep_s`; `first` until it was there for the first time."""

    def __init__(
        self, look: Callable[[], Awaitable[T]], first: T, *, keep_s: float, patience_s: float
    ) -> None:
        self._look = look
        self._value = first
        self._keep_ms = keep_s * 1000
        self._patience_s = patience_s
        self._looked_ms = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """The value, at most `keep_s` old unless it can't be had within `patience_s`."""
        if self._looking is None:
            if clock.mono_ms() - self._looked_ms < self._keep_ms:
                return self._value
            self._looking = asyncio.create_task(self._renew())
        await asyncio.wait({self._looking}, timeout=self._patience_s)
        return self._value

    def forget(self) -> None:
        """The next one who asks gets a new one: something was changed."""
        self._looked_ms = float("-inf")

    async def stop(self) -> None:
        """End a look-up that is still under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _renew(self) -> None:
        try:
            self._value = await self._look()
        except Exception:
            _log.exception("a look-up for the admin failed; it shows what was known before")
        finally:
            self._looked_ms = clock.mono_ms()
            self._looking = None
