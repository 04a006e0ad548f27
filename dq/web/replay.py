"""The page about replaying: what was accepted in a time window and never finished, pushed again.

Looking is reading and open to all; it goes on in the background, as logs may be of any size. There
is one replay at a time in an admin: another window takes the place of one that only looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from aiohttp import web

from dq.core.clock import local_text
from dq.core.errors import DatabaseAway
from dq.core.topic import is_topic_name
from dq.db.admin_store import Change
from dq.journal.replay import Window
from dq.web.deps import Admin
from dq.web.forms import Form, read_form, redirect
from dq.web.live import Live
from dq.web.pages import Pages, with_query
from dq.web.refusals import Refusal
from dq.web.replay_work import ReplayWork
from dq.web.sessions import Sessions
from dq.web.texts import Say
from dq.web.visitor import Visitor, visitor_of

SHOWN = 100
FAILURES_SHOWN = 20
DAY_MS = 86_400_000
_EACH_S = 0.5


class ReplayPage:
    """Handlers of /replay."""

    def __init__(self, admin: Admin, pages: Pages, sessions: Sessions) -> None:
        self._admin = admin
        self._pages = pages
        self._work: ReplayWork | None = None

        async def look() -> ReplayWork | None:
            return self._work

        def is_welcome(visitor: Visitor) -> bool:
            return sessions.find(visitor.token) is not None

        self._live: Live[ReplayWork | None] = Live(look, self._render, is_welcome, _EACH_S)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/replay", self.show),
            web.get("/replay/live", self._live.stream, allow_head=False),
            web.post("/replay/push", self.push),
            web.post("/replay/stop", self.stop),
        ]

    async def end(self, _: web.Application) -> None:
        """The process is leaving."""
        await self._live.stop()
        if self._work is not None:
            await self._work.end()

    async def show(self, request: web.Request) -> web.Response:
        """Without a window the form alone; with one, what is missing in it."""
        query = request.query
        now_ms = self._admin.now_ms()
        if "from" not in query:
            form = Form({"from": _typed(now_ms - DAY_MS), "to": ""})
            return await self._page(request, form)
        form = Form(query)
        window = self._read_window(form)
        if window is None:
            return await self._page(request, form, 422)
        if not self._begin(window, form):
            form.fault("from", Say("Another replay is pushing just now; it is shown below."))
            return await self._page(request, form, 409)
        return await self._page(request, form)

    async def push(self, request: web.Request) -> web.Response:
        """Push again what was found in this window."""
        form = await read_form(request)
        window = _window_of(form)
        work = self._work
        if work is None or work.window != window or work.is_running or not work.has_read:
            raise Refusal(409, Say("Look first what is missing; then push it again."))
        visitor = visitor_of(request)

        async def note_end() -> None:
            await self._note(visitor, work)

        work.push(note_end)
        return redirect(request, work.address)

    async def stop(self, request: web.Request) -> web.Response:
        """What is on its way arrives, no more follows."""
        if self._work is None or not self._work.is_running:
            raise Refusal(409, Say("Nothing is being replayed."))
        self._work.stop()
        return redirect(request, self._work.address)

    def _begin(self, window: Window, form: Form) -> bool:
        """Have this window looked through, unless it is; False when another one is pushed."""
        work = self._work
        if work is not None and work.window == window and work.state != "failed":
            return True
        if work is not None and work.state == "pushing":
            return False
        if work is not None:
            work.stop()
        to = form.text("to") or _typed(window.to_ms)
        query = {"from": form.text("from"), "to": to, "topic": window.topic}
        self._work = ReplayWork(self._admin, window, with_query("/replay", **query))
        self._work.read()
        return True

    def _read_window(self, form: Form) -> Window | None:
        from_ms, to_ms = _instant(form, "from"), _instant(form, "to")
        if from_ms is None:
            form.fault("from", Say("is needed"))
        topic = form.text("topic")
        if topic and not is_topic_name(topic):
            form.fault("topic", Say("is no name of a topic"))
        if to_ms is None:  # the present minute is over when it is not being written any more
            to_ms = self._admin.now_ms() // 60_000 * 60_000 + 60_000
        if from_ms is not None and from_ms >= to_ms:
            form.fault("to", Say("must be later than the beginning"))
        if form.faults or from_ms is None:
            return None
        return Window(from_ms, to_ms, topic or None)

    async def _note(self, visitor: Visitor, work: ReplayWork) -> None:
        """When it is over; with SQL away, what was done is done."""
        window, counts = work.window, work.pushing.counts
        told = ", ".join(f"{name} {counts[name]}" for name in ("created", "kept", "finished"))
        span = f"{local_text(window.from_ms)} – {local_text(window.to_ms)}"
        change = Change(
            self._admin.now_ms(),
            visitor.user,
            "replay",
            window.topic or "",
            None,
            f"{span}: {told}, failed {counts['failed']} of {len(work.found)}",
            visitor.address,
            self._admin.host,
        )
        try:
            await self._admin.store.add_change(change)
        except DatabaseAway as error:
            work.trouble = str(error)

    async def _page(self, request: web.Request, form: Form, status: int = 200) -> web.Response:
        fragment = self._render(visitor_of(request), self._work)["work"]
        return await self._pages.show(
            request,
            "replay.html",
            tab="replay",
            status=status,
            form=form,
            topics=[topic.topic for topic in self._admin.topics.all()],
            has_work=self._work is not None,
            fragment=fragment,
            host=self._admin.host,
        )

    def _render(self, visitor: Visitor, work: ReplayWork | None) -> Mapping[str, str]:
        if work is None:
            return {"work": ""}
        values = {
            "work": work,
            "again": work.address,
            "shown": work.found[:SHOWN],
            "failures": work.pushing.failures[:FAILURES_SHOWN],
        }
        return {"work": self._pages.fragment(visitor, "replay/work.html", **values)}


def _window_of(form: Form) -> Window | None:
    """What the button of a page that showed it says."""
    texts = (form.text("from_ms"), form.text("to_ms"))
    if not all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts):
        return None
    return Window(int(texts[0]), int(texts[1]), form.text("topic") or None)


def _instant(form: Form, name: str) -> int | None:
    """A time of the server's zone as browsers send it, or with a zone of its own."""
    text = form.text(name)
    if not text:
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        form.fault(name, Say("must be a time like 2026-11-21 06:00"))
        return None


def _typed(at_ms: int) -> str:
    return local_text(at_ms)[:16].replace(" ", "T")
