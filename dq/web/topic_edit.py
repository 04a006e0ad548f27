"""Making, copying and changing a topic.

What somebody else changed while the form was open is never overwritten unseen: the form carries a
stamp of what it showed, and is shown again when the topic is no longer that.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from multidict import MultiDict

from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.topic_form import (
    backoff_words,
    new_secret,
    read_topic,
    readable,
    rule_spot,
    stamp_of,
    to_fields,
)
from dq.web.visitor import visitor_of

_ANY_HOST = ("", "0.0.0.0", "::", "*")


class TopicEdit:
    """Handlers of the form."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        # A topic may be called new: no path of two parts is taken from it.
        return [
            web.get("/topics/-/new", self.new),
            web.post("/topics/-/new", self.make),
            web.post("/topics/check", self.check),
            web.get("/topics/{topic}/edit", self.edit),
            web.post("/topics/{topic}/edit", self.save),
        ]

    async def new(self, request: web.Request) -> web.Response:
        """An empty form; `?copy=NAME` fills it from a topic, `?first=1` with one that works."""
        retries = self._admin.settings.max_retries
        topic = Topic(topic="", max_retries=retries)
        original = self._admin.topics.get(request.query.get("copy", ""))
        if original is not None:
            topic = original
        elif request.query.get("first"):
            topic = first_topic(self._admin)
        fields = to_fields(topic) | {"seen": ""}
        if original is not None:
            fields["topic"] = ""
        form = Form(MultiDict(fields))
        return await self._show(request, form, None, is_first=bool(request.query.get("first")))

    async def make(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        name = form.text("topic")
        try:
            await self._admin.topics.sync()
            if self._admin.topics.get(name) is not None:
                form.fault("topic", Say("is registered already; open it to change it"))
            return await self._put(request, form, name, None)
        except DatabaseAway as error:
            return await self._show_unsaved(request, form, None, error)

    async def edit(self, request: web.Request) -> web.Response:
        topic = find_topic(self._admin, request)
        return await self._show(request, Form(MultiDict(to_fields(topic))), topic)

    async def save(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        try:
            await self._admin.topics.sync()
            previous = find_topic(self._admin, request)
            if form.text("seen") != stamp_of(previous):
                form.fault(
                    "",
                    Say(
                        "Somebody has changed this topic since the form was opened. "
                        "Save again to put yours in its place."
                    ),
                )
            return await self._put(request, form, previous.topic, previous)
        except DatabaseAway as error:
            return await self._show_unsaved(request, form, find_topic(self._admin, request), error)

    async def check(self, request: web.Request) -> web.Response:
        """What is wrong so far, for the script that asks while one types. Saves nothing."""
        form = await read_form(request)
        words = visitor_of(request).words
        name = form.text("known") or form.text("topic")
        retries = self._admin.settings.max_retries
        topic = read_topic(form, name, retries, self._admin.topics.get(form.text("known")))
        if topic is not None and not form.text("known") and self._admin.topics.get(name):
            form.fault("topic", Say("is registered already; open it to change it"))
        spot = rule_spot(form.raw("retry_if").rstrip())
        return web.json_response(
            {
                "faults": {field: words.say(what) for field, what in form.faults.items()},
                "spot": list(spot) if spot is not None else None,
                "backoff": self._backoff(request, form),
            }
        )

    async def _put(
        self, request: web.Request, form: Form, name: str, previous: Topic | None
    ) -> web.Response:
        made, secret = "", ""
        if form.is_ticked("generate"):
            made, secret = new_secret(previous if form.is_ticked("keep_secret") else None)
        retries = self._admin.settings.max_retries
        topic = read_topic(form, name, retries, previous, secret)
        if topic is None:
            return await self._show(request, form, previous, 422)
        await self._admin.topics.put(topic)
        await self._admin.note(
            request, "topic.put", name, before=readable(previous), after=readable(topic)
        )
        if made:
            return await self._pages.show(
                request, "topics/secret.html", tab="topics", topic=topic, made=made
            )
        said = Said("Topic {topic} is saved. Consumers follow within 2 s.", {"topic": name})
        return redirect(request, f"/topics/{name}", said)

    async def _show_unsaved(
        self, request: web.Request, form: Form, topic: Topic | None, error: DatabaseAway
    ) -> web.Response:
        """What was typed is not lost with the database."""
        what = Say("SQL is away: {why}. Save again when it is back.", why=error.detail)
        form.faults[""] = what
        return await self._show(request, form, topic, 503)

    async def _show(
        self,
        request: web.Request,
        form: Form,
        topic: Topic | None,
        status: int = 200,
        is_first: bool = False,
    ) -> web.Response:
        """`topic`: the one that is changed; None makes a new one."""
        if not visitor_of(request).may_change:
            raise Refusal(403, Say("You may look at everything here, but change nothing."))
        values: dict[str, Any] = {
            "form": form,
            "topic": topic,
            "seen": stamp_of(topic) if status == 422 and topic else form.text("seen"),
            "is_first": is_first,
            "spot": rule_spot(form.raw("retry_if").rstrip()),
            "backoff": self._backoff(request, form),
        }
        return await self._pages.show(
            request, "topics/form.html", tab="topics", status=status, **values
        )

    def _backoff(self, request: web.Request, form: Form) -> str:
        retries, settings = form.text("max_retries"), self._admin.settings
        is_number = retries.isascii() and retries.isdigit() and len(retries) < 10
        count = int(retries) if is_number else settings.max_retries
        text = form.text("backoff") or "2n+1"
        words = visitor_of(request).words
        return backoff_words(words, text, min(count, 1000), settings.retry_unit_s)


def first_topic(admin: Admin) -> Topic:
    """One that works as it is: its callback is dq's own liveness address, which always answers."""
    return Topic(
        topic="first",
        callback=f"{api_address(admin)}/healthz",
        method="GET",
        max_retries=admin.settings.max_retries,
    )


def api_address(admin: Admin) -> str:
    """Where the API is reached from this machine."""
    host, port = admin.settings.api_host, admin.settings.api_port
    host = "127.0.0.1" if host in _ANY_HOST else f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}"


def find_topic(admin: Admin, request: web.Request) -> Topic:
    """The topic that the address names; raises HTTPNotFound."""
    topic = admin.topics.get(request.match_info["topic"])
    if topic is None:
        raise web.HTTPNotFound
    return topic
