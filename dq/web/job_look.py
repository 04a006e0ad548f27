"""What is known of one job, from its node, the journal and the logs: looked up for its page.

A node or SQL away never hides what the other one knows; what may be missing is told beside it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from dq.core.errors import DatabaseAway, NodeAway
from dq.db.rows import JobRecord, State
from dq.journal.shipped import wait_shipped
from dq.queue.records import PRIORITIES
from dq.queue.schedule import JobView
from dq.web.deps import Admin
from dq.web.job_reasons import Reason, explain
from dq.web.job_story import Event, lateness_ms, story_of

CATCH_UP_MS = 300
FIND_S = 2.0


class Facts(msgspec.Struct, frozen=True):
    """A job, from its node or from the journal."""

    topic: str
    id: str
    state: str
    due_ms: int
    attempt: int
    body: bytes
    priority: str
    key: str
    created_ms: int
    timeout_ms: int = 0
    is_bodiless: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is unfinished."""
        return self.state in ("delayed", "ready", "running")

    @property
    def is_waiting(self) -> bool:
        """Whether it may be given another time."""
        return self.state in ("delayed", "ready")


@dataclass(frozen=True)
class Look:
    """What is known of a job. `view` None: no node has it; `away` says why that may be wrong.
    `sql` says why the story may lack something."""

    facts: Facts
    view: JobView | None
    story: list[Event]
    late_ms: int | None
    away: str
    sql: str


class JobLooker:
    """Looks a job up in everything that may know of it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def look(self, topic: str, id_: str) -> Look | None:
        """All that is known of a job, None for one that never was. Raises DatabaseAway when only
        the journal could tell, NodeAway when nothing can."""
        (view, away), (record, sql) = await asyncio.gather(
            self._find(topic, id_), self._read(topic, id_)
        )
        if view is None and record is None:
            if away:
                raise NodeAway(away)
            if sql:
                raise DatabaseAway(sql)
            return None
        facts = _facts(view, record)
        is_same = record is not None and (view is None or view.version == record.message.version)
        story = story_of(record if is_same else None, facts.created_ms)
        late_ms = lateness_ms(record) if is_same and record is not None else None
        return Look(facts, view, story, late_ms, away, sql)

    async def _find(self, topic: str, id_: str) -> tuple[JobView | None, str]:
        try:
            async with asyncio.timeout(FIND_S):
                return await self._admin.schedule.find(topic, id_), ""
        except NodeAway as error:
            return None, error.detail
        except TimeoutError:
            return None, f"no answer within {FIND_S:g} s"

    async def _read(self, topic: str, id_: str) -> tuple[JobRecord | None, str]:
        admin = self._admin
        try:
            behind = await wait_shipped(admin.settings.data_dir / "log", admin.journal, CATCH_UP_MS)
            record = await admin.journal.history(topic, id_)
        except DatabaseAway as error:
            return None, error.detail
        return record, "the journal is behind the logs" if behind else ""

    async def reasons(self, found: Look) -> list[Reason]:
        """Why the job waits; empty when it does not."""
        if found.view is None:
            return [Reason("node_away", "bad", text=found.away)] if found.away else []
        job, admin = found.view, self._admin
        hold = await admin.inspector.hold_up(job.topic, job.id)
        topic = admin.topics.get(job.topic)
        return explain(job, topic, hold, admin.instance(), admin.now_ms())


def _facts(view: JobView | None, record: JobRecord | None) -> Facts:
    if view is not None:
        timeout_ms = 0
        if record is not None and record.message.version == view.version:
            timeout_ms = record.message.timeout_ms
        return Facts(
            *(view.topic, view.id, view.state, view.due_ms, view.attempt, view.body),
            *(view.priority, view.key, view.created_ms, timeout_ms),
        )
    assert record is not None
    row = record.message
    state = State(row.state).name.lower()
    return Facts(
        *(row.topic, row.id, state, row.due, row.attempt, row.body),
        *(PRIORITIES[row.priority], row.bkey, row.created, row.timeout_ms, row.stub),
    )
