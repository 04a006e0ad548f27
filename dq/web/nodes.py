"""The page about nodes: what each holds and how it is, and adding, draining and removing one.

A node comes and goes in steps, each followed by a reload of all workers. It is added without
taking jobs, so that every worker looks there before any may put a job there; then it is let. It
is drained, so that nobody puts anything there any more, and removed when it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from aiohttp import web

from dq.core.errors import DatabaseAway
from dq.core.mail_url import hide_password
from dq.core.node_file import AddedNode, NodeFile
from dq.queue.inspect import NodeLook
from dq.queue.nodes import node_name
from dq.queue.probe import Unfit, probe
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.fresh import Fresh
from dq.web.live import Live
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import Visitor, visitor_of

MOST_TITLE_CHARS = 60
DRAINED_MS = 30_000
"""By then no worker of any host puts jobs into a node that is drained."""

_EACH_S = 2.0


@dataclass(frozen=True)
class Row:
    """A node as the page shows it. `is_here`: this process's workers know it. `title`, `url`: of
    one that was added in the admin, else "" """

    look: NodeLook
    is_here: bool
    draining_ms: int | None = None
    title: str = ""
    url: str = ""


@dataclass(frozen=True)
class Seen:
    """`away`: why what was saved can't be read."""

    rows: list[Row]
    away: str = ""

    @property
    def takers(self) -> int:
        """How many nodes take new jobs."""
        return sum(row.draining_ms is None for row in self.rows)


class NodesPage:
    """Handlers of /nodes."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions) -> None:
        self._admin = admin
        self._pages = pages
        self._fresh = Fresh(self._look, Seen([]), keep_s=1.0, patience_s=2.5)

        def is_welcome(visitor: Visitor) -> bool:
            return sessions.find(visitor.token) is not None

        self._live: Live[Seen] = Live(self._fresh.get, self._render, is_welcome, _EACH_S)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/nodes", self.show),
            web.get("/nodes/live", self._live.stream, allow_head=False),
            web.post("/nodes", self.add),
            web.post("/nodes/drain", self.drain),
            web.post("/nodes/open", self.open),
            web.post("/nodes/remove", self.remove),
        ]

    async def end(self, _: web.Application) -> None:
        """The process is leaving."""
        await self._live.stop()
        await self._fresh.stop()

    async def show(self, request: web.Request) -> web.Response:
        return await self._page(request, Form({}))

    async def add(self, request: web.Request) -> web.Response:
        """Test a Redis, and save it when it is fit."""
        form = await read_form(request)
        title, url = form.text("title"), form.text("url")
        if not 0 < len(title) <= MOST_TITLE_CHARS:
            form.fault("title", Say("must have 1 to {n} characters", n=MOST_TITLE_CHARS))
        saved = await self._admin.node_store.read()
        if any(url == one.url or title == one.title for one in saved.added):
            form.fault("title", Say("is saved already"))
        if not form.faults:
            try:
                found = await probe(url, self._admin.nodes.all)
            except Unfit as error:
                form.fault("url", str(error))
        if form.faults:
            return await self._page(request, form, 422)
        draining = {**saved.draining, found.name: self._admin.now_ms()}
        await self._save(NodeFile((*saved.added, AddedNode(title, url)), draining))
        await self._admin.note(
            request, "node.add", found.name, after=f"{title}: {hide_password(url)}"
        )
        said = Said(
            "{server} answers and is saved. Workers learn of it now; then let it take jobs.",
            {"server": f"{found.server.product} {found.server.version}"},
        )
        return redirect(request, "/nodes", said)

    async def drain(self, request: web.Request) -> web.Response:
        """No new jobs for it."""
        row = await self._row(request)
        seen = await self._look()
        if row.draining_ms is None and seen.takers < 2:
            raise Refusal(409, Say("It is the only node that takes jobs; add another one first."))
        saved = await self._admin.node_store.read()
        draining = {row.look.name: self._admin.now_ms(), **saved.draining}
        await self._save(msgspec.structs.replace(saved, draining=draining))
        await self._admin.note(request, "node.drain", row.look.name)
        said = Said("{node} takes no new jobs in a moment.", {"node": row.look.name})
        return redirect(request, "/nodes", said)

    async def open(self, request: web.Request) -> web.Response:
        """It takes new jobs."""
        row = await self._row(request)
        if not row.is_here:
            raise Refusal(409, Say("The workers do not know it yet; wait for the reload."))
        saved = await self._admin.node_store.read()
        draining = {name: at for name, at in saved.draining.items() if name != row.look.name}
        await self._save(msgspec.structs.replace(saved, draining=draining))
        await self._admin.note(request, "node.open", row.look.name)
        said = Said("{node} takes new jobs in a moment.", {"node": row.look.name})
        return redirect(request, "/nodes", said)

    async def remove(self, request: web.Request) -> web.Response:
        """When it is empty; or lost for good, as the person says."""
        form = await read_form(request)
        row = await self._row(request)
        if not row.title:
            raise Refusal(409, Say("It is a node of DQ_REDIS_URLS: take it out there, and reload."))
        if row.is_here:
            self._check_empty(row, is_lost=form.is_ticked("lost"))
        saved = await self._admin.node_store.read()
        added = tuple(one for one in saved.added if node_name(one.url) != row.look.name)
        draining = {name: at for name, at in saved.draining.items() if name != row.look.name}
        await self._save(NodeFile(added, draining))
        before = f"{row.title}: {row.url}"
        await self._admin.note(request, "node.remove", row.look.name, before=before)
        said = Said("{node} is removed.", {"node": row.look.name})
        return redirect(request, "/nodes", said)

    def _check_empty(self, row: Row, *, is_lost: bool) -> None:
        """Raises Refusal."""
        drained_ms = self._admin.now_ms() - (row.draining_ms or self._admin.now_ms())
        if row.draining_ms is None or drained_ms < DRAINED_MS:
            seconds = DRAINED_MS // 1000
            raise Refusal(
                409, Say("Drain it first, and wait {n} s: then nothing new comes.", n=seconds)
            )
        if row.look.away and not is_lost:
            raise Refusal(409, Say("It does not answer, so nobody knows what waits there."))
        if not row.look.away and (jobs := row.look.total("jobs")):
            raise Refusal(409, Say("It is not empty: {n} jobs wait there still.", n=jobs))

    async def _row(self, request: web.Request) -> Row:
        form = await read_form(request)
        seen = await self._look()
        if seen.away:
            raise DatabaseAway(seen.away)
        for row in seen.rows:
            if row.look.name == form.text("node"):
                return row
        raise web.HTTPNotFound

    async def _save(self, nodes: NodeFile) -> None:
        await self._admin.node_store.put(nodes)
        self._fresh.forget()

    async def _look(self) -> Seen:
        looks = await self._admin.inspector.look()
        try:
            saved, away = await self._admin.node_store.read(), ""
        except DatabaseAway as error:
            saved, away = NodeFile(), error.detail
            here = {node.name: 0 for node in self._admin.nodes.all if node.is_draining}
            saved = NodeFile(draining=here)
        added = {node_name(one.url): one for one in saved.added}
        rows = []
        for look in looks:
            one = added.pop(look.name, None)
            rows.append(_row_of(look, saved, one, is_here=True))
        rows += [_row_of(NodeLook(name), saved, one, is_here=False) for name, one in added.items()]
        return Seen(rows, away)

    async def _page(self, request: web.Request, form: Form, status: int = 200) -> web.Response:
        fragment = self._render(visitor_of(request), await self._fresh.get())["list"]
        return await self._pages.show(
            request, "nodes.html", tab="nodes", status=status, form=form, fragment=fragment
        )

    def _render(self, visitor: Visitor, seen: Seen) -> Mapping[str, str]:
        values = {"seen": seen, "drained_ms": DRAINED_MS}
        return {"list": self._pages.fragment(visitor, "nodes/list.html", **values)}


def _row_of(look: NodeLook, saved: NodeFile, added: AddedNode | None, *, is_here: bool) -> Row:
    draining_ms = saved.draining.get(look.name)
    if added is None:
        return Row(look, is_here, draining_ms)
    return Row(look, is_here, draining_ms, added.title, hide_password(added.url))
