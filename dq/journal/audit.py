"""Compares the journal's unfinished jobs with what the buckets hold, and puts back what they lack.

For a part that was lost while the rest stands: a key that was deleted or thrown away. A bucket
that is gone as a whole is dq.journal.restore's. In each page of unfinished jobs
  1. their buckets are asked; a job that is there but stands nowhere is scheduled again by that very
     script, as the bucket itself says that it is unfinished
  2. what a bucket lacks is only suspected: it may have ended a moment ago. SQL catches up with the
     logs as they were after the bucket was asked, and is asked again
  3. what is unfinished even then was lost, and is restored; what a log still speaks of beyond what
     SQL has is left to the next audit
It may be cut anywhere and begun again, and two at a time do no harm. Memory is bounded by a page.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dq.core import clock
from dq.core.errors import DatabaseAway, NodeAway
from dq.db.journal_store import JournalStore
from dq.db.rows import MessageRow, Place, State
from dq.journal.restore import adopting_bucket, stored_job
from dq.journal.shipped import touched_since, wait_shipped
from dq.queue.nodes import Bucket, Nodes
from dq.queue.store import AUDIT_MOST, Store, read_position

_log = logging.getLogger(__name__)

PAGE = 2_000
SUSPECTS_MOST = 20_000
SHIPPED_WITHIN_MS = 10_000
READY_WITHIN_MS = 30_000
FOREIGN_GRACE_S = 3.0
LOOK_S = 0.05


class Audited(msgspec.Struct):
    """What an audit found. `restored`: were missing; `rescheduled`: stood nowhere; both are in
    order now. `overdue_left`: the same, but left alone as their time has passed. `elsewhere`: of
    nodes that are not configured here. `nodes_away`: could not be asked."""

    looked_at: int = 0
    restored: int = 0
    rescheduled: int = 0
    overdue_left: int = 0
    elsewhere: int = 0
    nodes_away: list[str] = []


class Audit:
    """Audits all nodes; `root` holds the logs of this host."""

    def __init__(self, nodes: Nodes, store: Store, journal: JournalStore, root: Path) -> None:
        self._nodes = nodes
        self._store = store
        self._journal = journal
        self._root = root

    async def run(self, *, overdue: bool = True, adopt: bool = False) -> Audited:
        """One audit of everything.

        `overdue` False leaves alone what should have been called already. `adopt`: the jobs of
        nodes that are not configured any more go to the first node. Raises DatabaseAway, NodeFull.
        """
        work = _Pass(self._nodes, self._store, self._journal, self._root, overdue, adopt)
        await work.wait_ready()
        await wait_shipped(self._root, self._journal, SHIPPED_WITHIN_MS)  # to see the newest too
        after = b""
        while page := await self._journal.unfinished_places(after, PAGE):
            after = page[-1].version
            await work.look_at(page)
        await work.judge()
        return work.found

    async def restore_one(self, topic: str, id_: str) -> str | None:
        """Put one job back if its bucket lacks it: "restored" or "present"; the state of one that
        is finished; None for one that never was.

        Raises NodeAway, NodeFull, DatabaseAway.
        """
        if await wait_shipped(self._root, self._journal, SHIPPED_WITHIN_MS):
            raise DatabaseAway("the journal is behind the logs")
        found = await self._journal.history(topic, id_)
        if found is None or found.message.state != State.DELAYED:
            return None if found is None else State(found.message.state).name.lower()
        row = found.message
        work = _Pass(self._nodes, self._store, self._journal, self._root, True, True)
        await work.wait_ready()
        await work.look_at([Place(row.version, row.digest, row.topic, row.bucket, row.due)])
        is_missing = await work.judge()
        if work.found.nodes_away:
            raise NodeAway(f"{work.found.nodes_away[0]} does not answer")
        if work.found.restored or work.found.rescheduled:
            return "restored"
        # It was missing, and is not put back: it has ended, or was replaced, just now.
        return await self.restore_one(topic, id_) if is_missing else "present"


class _Pass:
    """One audit under way."""

    def __init__(
        self,
        nodes: Nodes,
        store: Store,
        journal: JournalStore,
        root: Path,
        overdue: bool,
        adopt: bool,
    ) -> None:
        self._nodes = nodes
        self._store = store
        self._journal = journal
        self._root = root
        self._overdue = overdue
        self._adopt = adopt
        self._homes = {bucket.name: bucket for bucket in nodes.buckets}
        self._away: set[Bucket] = set()
        self._suspects: list[Place] = []
        self.found = Audited()

    async def wait_ready(self) -> None:
        """A bucket that is being restored as a whole comes first; one that takes too long, or is
        away, is not looked at."""
        deadline_ms = clock.mono_ms() + READY_WITHIN_MS
        waiting = list(self._nodes.buckets)
        while waiting and clock.mono_ms() < deadline_ms:
            waiting = [bucket for bucket in waiting if not await self._is_ready(bucket)]
            if waiting:
                await asyncio.sleep(LOOK_S)
        for bucket in waiting:
            self._set_away(bucket)

    async def _is_ready(self, bucket: Bucket) -> bool:
        try:
            epoch, state, _ = await read_position(bucket, b"")
        except NodeAway:
            self._set_away(bucket)
            return True
        return bool(epoch) and state == "ready"

    def _set_away(self, bucket: Bucket) -> None:
        self._away.add(bucket)
        if bucket.node.name not in self.found.nodes_away:
            self.found.nodes_away.append(bucket.node.name)

    async def look_at(self, page: Sequence[Place]) -> None:
        """Ask the buckets about these jobs; what they lack is judged when it has become many."""
        self.found.looked_at += len(page)
        by_home: dict[Bucket, list[Place]] = defaultdict(list)
        for place in page:
            home = self._home_of(place.bucket, place.topic)
            if home is None:
                self.found.elsewhere += 1
            elif home not in self._away:
                by_home[home].append(place)
        for bucket, places in by_home.items():
            try:
                self._suspects += await self._ask(bucket, places)
            except NodeAway as error:
                _log.warning("%s can't be audited: %s", bucket.name, error.detail)
                self._set_away(bucket)
        if len(self._suspects) >= SUSPECTS_MOST:
            await self.judge()

    def _home_of(self, bucket: str, topic: str) -> Bucket | None:
        home = self._homes.get(bucket)
        return adopting_bucket(self._nodes, topic) if home is None and self._adopt else home

    async def _ask(self, bucket: Bucket, places: list[Place]) -> list[Place]:
        """Those that the bucket lacks."""
        missing: list[Place] = []
        for start in range(0, len(places), AUDIT_MOST):
            some = places[start : start + AUDIT_MOST]
            digests = [place.digest for place in some]
            answer = await self._store.audit(bucket, digests, overdue=self._overdue)
            self.found.rescheduled += answer.mended
            self.found.overdue_left += answer.left_overdue
            missing += [some[index] for index in answer.missing]
        return missing

    async def judge(self) -> bool:
        """Put back what is lost for certain; whether there was any suspicion."""
        suspects, self._suspects = self._suspects, []
        if not suspects:
            return False
        behind = await wait_shipped(self._root, self._journal, SHIPPED_WITHIN_MS)
        if await self._has_other_hosts():
            await asyncio.sleep(FOREIGN_GRACE_S)  # their logs can't be seen from here
        touched = await asyncio.to_thread(touched_since, behind)
        todo = sorted(place.version for place in suspects if place.digest not in touched)
        for start in range(0, len(todo), PAGE // 4):
            some = todo[start : start + PAGE // 4]
            while some and (rows := await self._journal.unfinished_among(some)):
                await self._put_back(rows)
                some = [version for version in some if version > rows[-1].version]
        return True

    async def _has_other_hosts(self) -> bool:
        cursors = await self._journal.open_cursors()
        return any(not (self._root / writer.hex()).exists() for writer in cursors)

    async def _put_back(self, rows: list[MessageRow]) -> None:
        by_home: dict[Bucket, list[MessageRow]] = defaultdict(list)
        now_ms = clock.now_ms()
        for row in rows:
            home = self._home_of(row.bucket, row.topic)
            if not self._overdue and row.due <= now_ms:
                self.found.overdue_left += 1
            elif home is not None:
                by_home[home].append(row)
        for bucket, lost in by_home.items():
            try:
                jobs = [stored_job(row) for row in lost]
                self.found.restored += await self._store.restore(bucket, jobs)
            except NodeAway as error:
                _log.warning("%s can't be mended now: %s", bucket.name, error.detail)
                self._set_away(bucket)


def tell(found: Audited) -> None:
    """Into the error log, when an audit had something to mend."""
    if found.restored or found.rescheduled:
        _log.warning(
            "of %d unfinished jobs %d were missing in their bucket and %d stood nowhere in it; "
            "they are put back",
            found.looked_at,
            found.restored,
            found.rescheduled,
        )
    if found.elsewhere:
        _log.warning(
            "%d unfinished jobs belong to nodes that are not configured here; `dq restore` gives "
            "them to the first node",
            found.elsewhere,
        )
