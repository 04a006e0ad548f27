"""What the tests of the pages about topics share."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dq.core.errors import DatabaseAway
from dq.core.topic import Topic
from dq.web.topic_form import number_text
from tests.web.browser import Browser, Reply
from tests.web.conftest import Served
from tests.web.test_pages import HOSTILE, Tags

LINE = HOSTILE.replace("\u202e", "")
FULL: dict[str, Any] = {
    "name": "Orders & more",
    "callback": "https://example.com/hook?a=1",
    "method": "GET",
    "format": "form",
    "headers": {"X-Shop": "7", "Authorization": "Bearer open sesame"},
    "delay": 0.1,
    "timeout": 12.5,
    "priority": "high",
    "email": ["a@example.com", "b@example.com"],
    "creator": "ops",
    "retry_if": "{res.code}!=200\n && {status}==200",
    "empty_is_failure": False,
    "max_retries": 3,
    "backoff": "10s,1m",
    "concurrency": 5,
    "rate": 0.00001,
    "enabled": False,
    "paused": True,
    "keep_done": 0.0,
    "keep_dead": 1.5,
}


async def add_topic(served: Served, topic: str, **fields: Any) -> None:
    fields = {"callback": "http://127.0.0.1/", **fields}
    await served.admin.topics.put(Topic(topic=topic, **fields))


def fields_of(page: Reply) -> dict[str, str]:
    """What a browser would send of the form as it stands: the first that is not the bar's."""
    fields: dict[str, str] = {}
    text = page.text[page.text.index("<main") :]
    for one in Tags(text).named("input"):
        kept = one.get("type") != "checkbox" or "checked" in one
        if kept and one.get("name") not in (None, "csrf", "back"):
            fields[str(one["name"])] = one.get("value") or ""
    for name, value in re.findall(r'(?s)<textarea[^>]* name="(\w+)"[^>]*>\n(.*?)</textarea>', text):
        fields[name] = re.sub(r"&#(\d+);|&lt;|&gt;|&amp;", _char, value)
    for name, options in re.findall(r'(?s)<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', text):
        values = Tags(options).named("option")
        chosen = next((o for o in values if "selected" in o), values[0])
        fields[name] = chosen["value"] or ""
    return fields


def _char(found: re.Match[str]) -> str:
    return chr(int(found[1])) if found[1] else {"&lt;": "<", "&gt;": ">", "&amp;": "&"}[found[0]]


def fault_at(page: Reply, field: str) -> str:
    found = re.search(rf'<p class="fault" id="e-{field}">(.*?)</p>', page.text)
    return found[1] if found else ""


async def form_at(browser: Browser, path: str) -> dict[str, str]:
    page = await browser.get(path)
    assert page.status == 200, page.words
    return fields_of(page)


def as_typed(topic: dict[str, Any]) -> dict[str, str]:
    """FULL as somebody types it."""
    fields = {name: str(value) for name, value in topic.items() if isinstance(value, str | float)}
    fields |= {name: "1" for name, value in topic.items() if value is True}
    fields["headers"] = "\r\n".join(f"{k}: {v}" for k, v in topic["headers"].items())
    fields["email"] = "\r\n".join(topic["email"])
    fields |= {n: number_text(topic[n]) for n in ("max_retries", "concurrency", "rate")}
    return {name: value for name, value in fields.items() if topic.get(name) is not False}


def stop_sql(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise DatabaseAway("<b>gone</b>")

    for part, names in (
        (served.admin.counts, ("of_topics", "per_minute")),
        (served.admin.attempts, ("last", "count_unfinished")),
        (served.admin.repository, ("put_topic", "delete_topic", "topics_revision")),
    ):
        for name in names:
            monkeypatch.setattr(part, name, away)


# The form
