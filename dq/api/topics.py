"""The calls about topics: the same documents as in the admin and on the command line.

core.topic decides what a topic may say. A topic that was put is in force in this process when the
answer goes out; the others follow within 2 s.
"""

from __future__ import annotations

from aiohttp import web

from dq.api.deps import Api, Commits
from dq.api.fields import split_object
from dq.api.wire import answer_json, path_part, read_json
from dq.core.errors import TopicUnknown
from dq.core.topic import parse_topic, topic_to_doc

MAX_DOCUMENT_BYTES = 1024 * 1024


class TopicCalls:
    """Handlers of /v1/topics."""

    def __init__(self, api: Api, commits: Commits) -> None:
        self._book = api.topics
        self._commits = commits
        self._default_max_retries = api.settings.max_retries

    def routes(self) -> list[web.RouteDef]:
        topic = "/v1/topics/{topic:[^/]+}"
        return [
            web.get("/v1/topics", self.all),
            web.get(topic, self.get),
            web.put(topic, self.put),
            web.delete(topic, self.delete),
        ]

    async def all(self, request: web.Request) -> web.Response:
        self._book.refresh()
        topics = sorted(self._book.all(), key=lambda topic: topic.topic)
        data = [topic_to_doc(topic) for topic in topics]
        return answer_json({"data": data, "next_cursor": None, "has_more": False})

    async def get(self, request: web.Request) -> web.Response:
        self._book.refresh()
        name = path_part(request, 2)
        topic = self._book.get(name)
        if topic is None:
            raise TopicUnknown(name)
        return answer_json(topic_to_doc(topic))

    async def put(self, request: web.Request) -> web.Response:
        name = path_part(request, 2)
        raw = await read_json(request, MAX_DOCUMENT_BYTES)
        split_object(raw)
        self._book.refresh()
        topic = parse_topic(name, raw, self._default_max_retries, self._book.get(name))
        created = await self._commits.run(self._book.put(topic))
        return answer_json(topic_to_doc(topic), 201 if created else 200)

    async def delete(self, request: web.Request) -> web.Response:
        name = path_part(request, 2)
        if not await self._commits.run(self._book.delete(name)):
            raise TopicUnknown(name)
        return answer_json({"result": "deleted"})
