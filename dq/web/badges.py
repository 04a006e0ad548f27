"""The little numbers beside the tabs: there only when something is wrong.

Every page shows them, so they are looked up for all pages together, every few seconds at most, and
no page waits for them longer than a moment. A new one is a row of the table at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from dq.core.errors import DatabaseAway
from dq.web.deps import Admin
from dq.web.fresh import Fresh
from dq.web.texts import Say

MOST = 100
DAY_MS = 86_400_000
_KEEP_S = 5.0
_PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class Badge:
    """`text` is the number; `why` says of what, on hovering and to who can't see it."""

    text: str
    why: Say


def up_to(count: int) -> str:
    """A number that was counted up to MOST: 99+ stands for any more."""
    return f"{MOST - 1}+" if count >= MOST else str(count)


class Badges:
    """The badges of all tabs, by the tabs' names."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        first: Mapping[str, Badge] = {}
        self._fresh = Fresh(self._look, first, keep_s=_KEEP_S, patience_s=_PATIENCE_S)

    async def get(self) -> Mapping[str, Badge]:
        """What is wrong now."""
        return await self._fresh.get()

    def forget(self) -> None:
        """Something was changed: count again for the next page."""
        self._fresh.forget()

    async def stop(self) -> None:
        await self._fresh.stop()

    async def _look(self) -> Mapping[str, Badge]:
        found = await asyncio.gather(*(count(self._admin) for count in _COUNTS.values()))
        return {tab: badge for tab, badge in zip(_COUNTS, found, strict=True) if badge}


async def _dead(admin: Admin) -> Badge | None:
    try:
        count = await admin.dead.count_since(admin.now_ms() - DAY_MS, MOST)
    except DatabaseAway:
        return None  # the overview says so
    return Badge(up_to(count), Say("died in the last 24 h: {n}", n=up_to(count))) if count else None


async def _nodes(admin: Admin) -> Badge | None:
    count = sum(bool(node.away) for node in await admin.inspector.look())
    return Badge(str(count), Say("nodes that do not answer: {n}", n=count)) if count else None


_COUNTS: dict[str, Callable[[Admin], Awaitable[Badge | None]]] = {"dead": _dead, "nodes": _nodes}
