"""How long a node that hangs is waited for, by those who look for a job on all nodes.

The first look takes as long as any command may. After it the node is known to hang, and only one
look in PROBE_MS is that patient again; the others wait SHORT_S, or every push to the nodes that
live would wait for the one that does not. It is never asked of a node that has just answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from dq.core import clock
from dq.core.errors import NodeAway
from dq.queue.nodes import Node

SHORT_S = 0.5
PROBE_MS = 10_000

T = TypeVar("T")


class Patience:
    """What one process knows of nodes that hang."""

    def __init__(self) -> None:
        self._hangs_until_ms: dict[Node, float] = {}

    async def wait(self, node: Node, look: Awaitable[T]) -> T:
        """What `look` finds on `node`. Raises NodeAway, and what `look` raises."""
        began_ms = clock.mono_ms()
        try:
            async with asyncio.timeout(self._limit_s(node)):
                found = await look
        except TimeoutError:
            raise NodeAway(f"{node.name} does not answer") from None
        except NodeAway:
            if clock.mono_ms() - began_ms > SHORT_S * 1000:
                self._hangs_until_ms[node] = clock.mono_ms() + PROBE_MS
            raise
        self._hangs_until_ms.pop(node, None)
        return found

    def _limit_s(self, node: Node) -> float | None:
        """None: as long as any command may take."""
        until_ms = self._hangs_until_ms.get(node)
        if until_ms is None:
            return None
        if clock.mono_ms() < until_ms:
            return SHORT_S
        self._hangs_until_ms[node] = clock.mono_ms() + PROBE_MS
        return None
