"""The list of topics: filtered and cut into pages by name before anything is looked up.

With ten thousand topics a page still costs one page: counts, waiting jobs and markup are made for
the topics on it and for no others. The cursor is the name after which the page begins, so a topic
that is made or deleted meanwhile neither repeats nor hides another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.db.counts import TopicCounts
from dq.queue.inspect import TopicLook
from dq.web.deps import Admin

PAGE = 50
LINES = ("on", "off", "paused")


@dataclass(frozen=True)
class Wanted:
    """`q`: part of a name; `line`: one of LINES, "" for any; `cursor`: the name before."""

    q: str = ""
    line: str = ""
    cursor: str = ""

    @property
    def query(self) -> dict[str, str]:
        """All but the cursor."""
        return {"q": self.q, "line": self.line}

    def fits(self, topic: Topic) -> bool:
        """Whether the topic belongs into this list."""
        if self.line and line_of(topic) != self.line:
            return False
        part = self.q.lower()
        return part in topic.topic.lower() or part in topic.name.lower()


@dataclass(frozen=True)
class Listed:
    """A page. `counts` is empty while SQL is away, for which `away` says why; `cursor` is of the
    page after this one; `matching` and `known` count topics."""

    topics: Sequence[Topic]
    cursor: str | None
    matching: int
    known: int
    looks: Mapping[str, TopicLook] = field(default_factory=dict)
    counts: Mapping[str, TopicCounts] = field(default_factory=dict)
    away: str = ""


def line_of(topic: Topic) -> str:
    """off, paused or on: off line wins, as then nothing of it moves at all."""
    return "off" if not topic.enabled else "paused" if topic.paused else "on"


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """From an address; a line that does not exist is any."""
    line = query.get("line", "")
    q = query.get("q", "").strip()[:200]
    return Wanted(q, line if line in LINES else "", query.get("cursor", "")[:128])


def cut_page(topics: Sequence[Topic], wanted: Wanted) -> Listed:
    """The page of `topics`, which are sorted by name, that is wanted."""
    fitting = [topic for topic in topics if wanted.fits(topic)]
    rest = [topic for topic in fitting if topic.topic > wanted.cursor]
    page = rest[:PAGE]
    cursor = page[-1].topic if len(rest) > PAGE else None
    return Listed(page, cursor, len(fitting), len(topics))


async def list_topics(admin: Admin, wanted: Wanted) -> Listed:
    """The page with what there is to say of its topics. Never raises for SQL or nodes away."""
    page = cut_page(admin.topics.all(), wanted)
    names = [topic.topic for topic in page.topics]
    (counts, away), looks = await asyncio.gather(
        counts_of(admin, names), admin.inspector.topics(names)
    )
    return Listed(page.topics, page.cursor, page.matching, page.known, looks, counts, away)


async def counts_of(admin: Admin, names: Sequence[str]) -> tuple[dict[str, TopicCounts], str]:
    """The counts of these topics, or why they are not known."""
    try:
        return await admin.counts.of_topics(names, day_start_ms(admin.now_ms())), ""
    except DatabaseAway as error:
        return {}, error.detail


def day_start_ms(now_ms: int) -> int:
    """When today began, in the server's time zone."""
    today = datetime.fromtimestamp(now_ms // 1000).replace(hour=0, minute=0, second=0)
    return int(today.timestamp()) * 1000
