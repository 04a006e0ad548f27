"""The pages about topics: finding them, turning them on and off, deleting them. The form is in
dq/web/topic_edit.py, a topic's own page in dq/web/topic_page.py, its rule in dq/web/topic_rule.py.
"""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.web.deps import Admin
from dq.web.forms import Said, read_form, redirect
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.topic_edit import TopicEdit, api_address, find_topic, first_topic
from dq.web.topic_form import readable
from dq.web.topic_list import LINES, line_of, list_topics, read_wanted
from dq.web.topic_page import TopicPage
from dq.web.topic_rule import RulePage
from dq.web.visitor import visitor_of

_SWITCHES = {
    "on": ({"enabled": True}, Said("Topic {topic} is on line.")),
    "off": (
        {"enabled": False},
        Said("Topic {topic} is off line: pushes are refused, its due jobs wait."),
    ),
    "pause": ({"paused": True}, Said("Topic {topic} is paused: pushes are taken, callbacks wait.")),
    "resume": ({"paused": False}, Said("Topic {topic} goes on.")),
}
MOST_COUNTED = 100_000


class TopicsPage:
    """Handlers of /topics and all below it."""

    def __init__(self, admin: Admin, pages: Pages) -> None:
        self._admin = admin
        self._pages = pages
        self._parts = (TopicEdit(admin, pages), RulePage(admin, pages), TopicPage(admin, pages))

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/topics", self.show),
            web.post("/topics/{topic}/switch", self.switch),
            web.get("/topics/{topic}/delete", self.ask_delete),
            web.post("/topics/{topic}/delete", self.delete),
            *(route for part in self._parts for route in part.routes()),
        ]

    async def show(self, request: web.Request) -> web.Response:
        wanted = read_wanted(request.query)
        listed = await list_topics(self._admin, wanted)
        return await self._pages.show(
            request,
            "topics.html",
            tab="topics",
            wanted=wanted,
            listed=listed,
            lines=LINES,
            line_of=line_of,
            first=first_topic(self._admin),
            shell=_first_by_shell(self._admin),
        )

    async def switch(self, request: web.Request) -> web.Response:
        """On line, off line, pause, resume: one field, the rest as it is now."""
        form = await read_form(request)
        if form.text("to") not in _SWITCHES:
            raise Refusal(422, Say("A topic can be turned on or off, paused or resumed."))
        change, said = _SWITCHES[form.text("to")]
        await self._admin.topics.sync()
        topic = find_topic(self._admin, request)
        changed: Topic = replace(topic, **change)
        await self._admin.topics.put(changed)
        await self._admin.note(
            request,
            "topic.switch",
            topic.topic,
            before=_line_words(topic),
            after=_line_words(changed),
        )
        back = form.text("back") or f"/topics/{topic.topic}"
        return redirect(request, back, replace(said, values={"topic": topic.topic}))

    async def ask_delete(self, request: web.Request) -> web.Response:
        """What deleting would mean; changes nothing."""
        if not visitor_of(request).may_change:
            raise Refusal(403, Say("You may look at everything here, but change nothing."))
        topic = find_topic(self._admin, request)
        waiting, away = 0, ""
        try:
            waiting = await self._admin.attempts.count_unfinished(topic.topic, MOST_COUNTED)
        except DatabaseAway as error:
            away = error.detail
        return await self._pages.show(
            request,
            "topics/delete.html",
            tab="topics",
            topic=topic,
            waiting=waiting,
            is_more=waiting >= MOST_COUNTED,
            away=away,
        )

    async def delete(self, request: web.Request) -> web.Response:
        await self._admin.topics.sync()
        topic = find_topic(self._admin, request)
        await self._admin.topics.delete(topic.topic)
        await self._admin.note(request, "topic.delete", topic.topic, before=readable(topic))
        return redirect(
            request, "/topics", Said("Topic {topic} is deleted.", {"topic": topic.topic})
        )


def _first_by_shell(admin: Admin) -> str:
    """The first topic and its first job as commands for the API."""
    first, api = first_topic(admin), api_address(admin)
    lines = (
        f"curl -X PUT {api}/v1/topics/first -H 'Content-Type: application/json' \\",
        f"""     -d '{{"callback": "{first.callback}", "method": "GET"}}'""",
        f"curl {api}/v1/jobs -H 'Content-Type: application/json' \\",
        """     -d '{"topic": "first", "id": "1", "body": {"test": true}, "delay": 5}'""",
        f"curl {api}/v1/jobs/first/1",
    )
    return "\n".join(lines)


def _line_words(topic: Topic) -> str:
    """For the log of changes."""
    return ("on line" if topic.enabled else "off line") + (", paused" if topic.paused else "")
