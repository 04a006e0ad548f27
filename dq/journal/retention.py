"""Forgets finished jobs when their time is over: as long as their topic says, its defaults where
the topic is no more.

One small bite a second, so that shipping never waits long; when all has been looked through, a
rest. What is unfinished is never forgotten. Counts of minutes long past go with it.
"""

from __future__ import annotations

import asyncio
import logging

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.db.counts import Counts
from dq.db.journal_store import JournalStore
from dq.db.rows import State
from dq.db.topic_book import TopicBook

_log = logging.getLogger(__name__)

BITE = 2_000
BITE_EACH_S = 1.0
REST_S = 300.0
DAY_MS = 86_400_000


class Retention:
    """Purges the journal. `topics` only follows the file."""

    def __init__(self, store: JournalStore, topics: TopicBook, counts: Counts) -> None:
        self._store = store
        self._counts = counts
        self._topics = topics

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(BITE_EACH_S)
            try:
                removed = await self.sweep(clock.now_ms())
            except DatabaseAway as error:
                _log.debug("finished jobs are forgotten later: %s", error.detail)
                await asyncio.sleep(BITE_EACH_S)
                continue
            if removed:
                _log.info("%d finished versions forgotten", removed)
            await asyncio.sleep(REST_S)

    async def sweep(self, now_ms: int) -> int:
        """Look through everything once; how many versions went. Raises DatabaseAway."""
        self._topics.refresh()
        await self._counts.purge(now_ms)
        removed, name = 0, ""
        while (name := await self._store.next_topic(name)) != "":
            topic = self._topics.get(name) or Topic(topic=name)
            for state, days in _kept_days(topic):
                if days:
                    before_ms = now_ms - round(days * DAY_MS)
                    removed += await self._purge(name, state, before_ms)
        return removed

    async def _purge(self, name: str, state: State, before_ms: int) -> int:
        removed = 0
        after: bytes | None = b""
        while after is not None:
            bite = await self._store.purge(name, state, before_ms, after, BITE)
            removed, after = removed + bite.removed, bite.after
            if bite.removed:
                await asyncio.sleep(BITE_EACH_S)
        return removed


def _kept_days(topic: Topic) -> list[tuple[State, float]]:
    kept = [(state, topic.keep_done) for state in (State.DONE, State.CANCELLED, State.REPLACED)]
    return [*kept, (State.DEAD, topic.keep_dead)]
