"""When the nodes are audited: every ten minutes, and at once when the counts of a bucket no longer
add up, which is looked at every other second and costs next to nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from dq.core import clock
from dq.core.alarms import compose_mended_mail
from dq.core.errors import DatabaseAway, NodeAway, NodeFull
from dq.core.pace import next_turn
from dq.journal.audit import Audit, tell
from dq.queue.nodes import Bucket, NodeRefused, Nodes
from dq.queue.store import Store

_log = logging.getLogger(__name__)

FIRST_MS = 30_000
EACH_MS = 600_000
APART_MS = 15_000
"""From one audit to the next that broken counts ask for."""
LOOK_S = 2.0


class Auditing:
    """The audits of one dq-redis-checker."""

    def __init__(
        self,
        nodes: Nodes,
        store: Store,
        audit: Audit,
        tell_people: Callable[[str, str], None],
    ) -> None:
        self._nodes = nodes
        self._store = store
        self._audit = audit
        self._tell_people = tell_people
        self._next_ms = clock.mono_ms() + FIRST_MS
        self._earliest_ms = clock.mono_ms()
        self._is_behind_told = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await next_turn(LOOK_S)
            now_ms = clock.mono_ms()
            is_broken = now_ms >= self._earliest_ms and not await self._is_whole()
            if is_broken or now_ms >= self._next_ms:
                self._next_ms = now_ms + EACH_MS
                await self._look()
                self._earliest_ms = clock.mono_ms() + APART_MS

    async def _is_whole(self) -> bool:
        """False when some bucket's counts don't add up; a node that is away is not asked."""
        return all(await asyncio.gather(*map(self._adds_up, self._nodes.buckets)))

    async def _adds_up(self, bucket: Bucket) -> bool:
        try:
            is_whole = await self._store.is_whole(bucket)
        except (NodeAway, NodeRefused) as error:
            _log.debug("%s: %s", bucket.name, error)
            return True
        if not is_whole:
            _log.error("%s has lost keys; it is compared with the journal", bucket.name)
        return is_whole

    async def _look(self) -> None:
        try:
            found = await self._audit.run()
        except (DatabaseAway, NodeFull, NodeRefused) as error:
            if not self._is_behind_told:
                _log.error("the nodes can't be compared with the journal now: %s", error)
            self._is_behind_told = True
            self._next_ms = clock.mono_ms() + APART_MS
            return
        self._is_behind_told = False
        tell(found)
        if found.restored or found.rescheduled:
            host = socket.gethostname()
            self._tell_people(*compose_mended_mail(host, found.restored, found.rescheduled))
