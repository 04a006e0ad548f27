"""The front page: is everything well, and if not, what is wrong.

One look at the nodes serves the page and all who watch it live. The live parts are templates of
their own (overview/*.html), the same on the page and in the stream, so the two never differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from dq.core.errors import DatabaseAway
from dq.db.counts import MinuteCounts
from dq.db.instances import SILENT_MS
from dq.db.rows import State
from dq.queue.inspect import NodeLook
from dq.web.backlog import Sample
from dq.web.badges import MOST, up_to
from dq.web.deps import Admin, Instance
from dq.web.fresh import Fresh
from dq.web.live import Live
from dq.web.pages import Pages
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import Visitor, visitor_of

STEP_MS = 60_000
STEPS = 60
LATE_MS = 2_000
_PARTS = ("state", "figures", "charts", "ahead", "nodes", "processes")


@dataclass(frozen=True)
class Told:
    """What SQL tells. `away`: why it tells nothing, and then `dead` and `minutes` are None."""

    dead: int | None = None
    minutes: list[MinuteCounts] | None = None
    others: list[Instance] = field(default_factory=list)
    away: str = ""


@dataclass(frozen=True)
class Snapshot:
    """What is seen at `at_ms`. `dead`: up to MOST, None while SQL is away, which `sql` explains.
    `ahead`: delayed jobs due in each of the next STEPS minutes. `minutes` and `samples`: each of
    the last STEPS minutes, None while SQL is away, and where nobody counted. `others`: who runs
    dq elsewhere."""

    at_ms: int
    instance: Instance
    nodes: list[NodeLook] = field(default_factory=list)
    ahead: list[int] = field(default_factory=lambda: [0] * STEPS)
    dead: int | None = None
    sql: str = ""
    minutes: list[MinuteCounts] | None = None
    samples: list[Sample | None] = field(default_factory=list)
    others: list[Instance] = field(default_factory=list)

    def total(self, state: str) -> int:
        """Jobs of all nodes that answered."""
        return sum(node.total(state) for node in self.nodes)

    @property
    def answering(self) -> list[NodeLook]:
        return [node for node in self.nodes if not node.away]

    @property
    def late_ms(self) -> int:
        return max((node.late_ms(self.at_ms) for node in self.nodes), default=0)

    @property
    def dead_text(self) -> str:
        return "–" if self.dead is None else up_to(self.dead)


class OverviewPage:
    """Handlers of / and /live."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions) -> None:
        self._admin = admin
        self._pages = pages
        first = Snapshot(admin.now_ms(), admin.instance())
        self._fresh = Fresh(self._look, first, keep_s=1.0, patience_s=2.5)
        # Apart from the nodes, which must be shown while SQL hangs.
        self._told = Fresh(self._ask_sql, Told(), keep_s=3.0, patience_s=1.0)

        def is_welcome(visitor: Visitor) -> bool:
            return sessions.find(visitor.token) is not None

        self._live: Live[Snapshot] = Live(self._fresh.get, self._render, is_welcome)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/", self.show), *self._live.routes()]

    async def stop(self, _: web.Application) -> None:
        """End the live streams and the look that is under way."""
        await self._live.stop()
        await self._fresh.stop()
        await self._told.stop()

    async def show(self, request: web.Request) -> web.Response:
        fragments = self._render(visitor_of(request), await self._fresh.get())
        return await self._pages.show(request, "overview.html", tab="overview", fragments=fragments)

    async def problems(self) -> list[Say]:
        """What is wrong now, the worst first."""
        return problems(await self._fresh.get())

    def _render(self, visitor: Visitor, seen: Snapshot) -> Mapping[str, str]:
        values = {"seen": seen, "problems": problems(seen), "step_ms": STEP_MS}
        return {
            part: self._pages.fragment(visitor, f"overview/{part}.html", **values)
            for part in _PARTS
        }

    async def _look(self) -> Snapshot:
        now_ms = self._admin.now_ms()
        nodes, ahead, told = await asyncio.gather(
            self._admin.inspector.look(),
            self._admin.inspector.due_ahead(now_ms, STEP_MS, STEPS),
            self._told.get(),
        )
        return Snapshot(
            now_ms,
            self._admin.instance(),
            nodes,
            ahead,
            told.dead,
            told.away,
            told.minutes,
            self._admin.backlog.per_minute(_first_ms(now_ms), STEPS),
            told.others,
        )

    async def _ask_sql(self) -> Told:
        now_ms = self._admin.now_ms()
        first_ms = _first_ms(now_ms)
        try:
            dead, minutes, others = await asyncio.gather(
                self._admin.store.count_jobs(State.DEAD, MOST),
                self._admin.counts.per_minute(first_ms, first_ms + STEPS * STEP_MS),
                self._admin.instances.others(now_ms),
            )
        except DatabaseAway as error:
            return Told(away=error.detail)
        return Told(dead, minutes, others)


def _first_ms(now_ms: int) -> int:
    """When the first of the last STEPS minutes began; the present one is the last of them."""
    return (now_ms // STEP_MS - STEPS + 1) * STEP_MS


def problems(seen: Snapshot) -> list[Say]:
    """What is wrong and not yet a mail: each with what to do, the worst first."""
    found = [
        Say("Node {node} does not answer: {why}", node=node.name, why=node.away)
        for node in seen.nodes
        if node.away
    ]
    for node in seen.answering:
        if any(bucket.state not in ("ready", "") for bucket in node.buckets):
            found.append(Say("Node {node} is being restored from the journal", node=node.name))
    if seen.sql:
        found.append(
            Say("SQL is away: {why}. Jobs go on; history is caught up later.", why=seen.sql)
        )
    for process in seen.instance.processes:
        if process.state not in ("running", "starting", "stopping"):
            found.append(
                Say(
                    "{name} is {state}; logs/err_*.txt says why",
                    name=process.name,
                    state=process.state,
                )
            )
    for other in seen.others:
        if seen.at_ms - other.seen_ms > SILENT_MS:
            seconds = (seen.at_ms - other.seen_ms) // 1000
            found.append(Say("dq on {host} has been silent for {n} s", host=other.host, n=seconds))
    if seen.instance.reload_error:
        found.append(Say("The last reload was refused: {why}", why=seen.instance.reload_error))
    if seen.late_ms > LATE_MS:
        seconds = seen.late_ms // 1000
        found.append(Say("Due jobs wait for {n} s to be made ready: is dq-timer alive?", n=seconds))
    return found
