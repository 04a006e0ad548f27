"""What other parts of dq say in English, on pages in another language: all of it is translated.

Every text with words in it that stands in the modules below counts as a message that a page may
pass on, unless it is named here as none. A new one is translated in templates/locale/zh/heard/.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from multidict import MultiDict

import dq
from dq.api.job_fields import read_due, read_job
from dq.api.problems import Refused
from dq.api.searches import read_search
from dq.core.errors import Invalid
from dq.core.topic import Topic, parse_topic
from dq.web.heard import Heard
from dq.web.pages import templates_folder
from dq.web.texts import Catalogues, Say, read_catalogue
from tests.web.conftest import Served

HEARD = templates_folder() / "locale" / "zh" / "heard"
UNLISTED = ("outside.json", "changes.json")
"""What libraries and the system say, which nobody can list; and the log of changes, which is made
of single words and of what was stored long ago."""

MODULES = """
    core/topic core/topic_fields core/backoff core/rule core/signing core/errors core/mail_url
    core/outcome core/settings
    api/instants api/fields api/job_fields api/searches api/ids
    delivery/reasons delivery/mail delivery/attempt delivery/http delivery/connection delivery/wire
    delivery/resolve delivery/parser delivery/client delivery/pool delivery/plain
    queue/nodes queue/schedule queue/lane queue/line queue/patience queue/store queue/probe
    queue/inspect queue/records
    db/database db/token_book db/topic_book db/alarm_settings db/search db/admin_store db/rows
    journal/dead journal/reader journal/push_again journal/replay
    workers/master workers/sockets
    web/bulk web/job_look web/job_cancel web/replay_work
"""

NO_MESSAGES = {
    # Parts of a message that stands here as a whole too, with what is put into it.
    " or null for no limit",
    " (redirects are not followed)",
    "; compare with ==",
    "; write &&",
    "; write ||",
    "; did you mean `{}`?",
    # What is put into them.
    "unexpected {}{}",
    "must be a whole number from {} to {}{}",
    "is no field here{}",
    "is no parameter of a search{}",
    # Of settings, for their own page.
    "# Settings",
    "<!-- Made from dq/core/settings.py by `dq settings --markdown`; change it there. -->",
    "Each setting is a key of `dq.toml` (`--config FILE`, or `./dq.toml` if it exists) and an",
    "environment variable, which wins. An empty value means the default. `dq settings` shows",
    "what is in force.",
    "| key | variable | default | unit | meaning |",
    "see the meaning",
    *("{}: {} is no setting of dq{}", "; did you mean {}?", "; it knows {}"),
    # Said to other programs, to the log of errors, or looked for in what they say.
    *("Accept: */*", "Accept-Encoding: identity", "Content-Length: {}", "Host: {}", "return 1"),
    *("Expected HTTP/", "Invalid HTTP version", "no such table", '<{}>; rel="next"'),
    "{}: {} of {}, {} gone, {} failed",
    "{} is a good id",
    "known from before",
    "Input data was truncated",
}

WHOLE = """
must be a whole number from 1 to 9
must be a whole number from 1 to 9 or null for no limit
DNS: shop.example: Name or service not known
TLS: certificate has expired
dq.toml: x is no setting of dq; did you mean y?
dq.toml: x is no setting of dq; it knows y
HTTP 301 (redirects are not followed)
unexpected '='; compare with ==
unexpected '&'; write &&
unexpected '|'; write ||
is no field here
is no field here; did you mean `topic`?
is no parameter of a search
is no parameter of a search; did you mean `topic`?
""".strip().splitlines()

_CHINESE = re.compile("[\u4e00-\u9fff]")
_WORD = re.compile(r"[a-z]{2,}")
_NONE = re.compile(r"^PRAGMA |^SET |%[.\d]*[sdf]")
"""SQL, and lines of the log."""


@pytest.fixture(scope="module")
def chinese() -> Heard:
    return Heard(read_catalogue(HEARD))


def templates_of(path: Path) -> Iterator[str]:
    """Each text of a module that may be a message; `{}` for what is put in."""
    tree = ast.parse(path.read_text())
    passed = set(_passed_over(tree))
    for node in ast.walk(tree):
        if id(node) in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text and _WORD.search(text) and not _NONE.search(text):
            yield text


def _passed_over(tree: ast.Module) -> Iterator[int]:
    """Docstrings, parts of f-strings, patterns, log lines, and texts that pages translate."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield from map(id, node.values)
        elif isinstance(node, ast.Call) and _is_no_message(node.func):
            yield from map(id, ast.walk(node))


def _is_no_message(called: ast.expr) -> bool:
    name = getattr(called, "id", getattr(called, "attr", ""))
    owner = getattr(getattr(called, "value", None), "id", "")
    return name in ("Say", "Said", "Setting", "compile", "text") or owner in ("_log", "log", "re")


def every_message() -> set[str]:
    package = Path(dq.__file__).parent
    found = {text for name in MODULES.split() for text in templates_of(package / f"{name}.py")}
    assert len(found) > 150
    return found


def samples(template: str) -> tuple[str, ...]:
    """As it may be said: by itself, after the name of a setting, of a port, before what to do."""
    said = template.replace("{}", "7")
    return said, f"DQ_X {said}", f"0.0.0.0:1 {said}; free it"


def test_every_message_has_a_translation(chinese: Heard) -> None:
    messages = every_message() - NO_MESSAGES
    said = {text: "".join(map(chinese.say, samples(text))) for text in messages}
    assert sorted(text for text, one in said.items() if not _CHINESE.search(one)) == []
    for text in WHOLE:
        assert _CHINESE.search(chinese.say(text)), text


def test_what_counts_as_no_message_is_there() -> None:
    assert sorted(NO_MESSAGES - every_message()) == []


def test_every_translation_is_of_a_message() -> None:
    told = [said for text in every_message() for said in samples(text)] + WHOLE
    for path in HEARD.glob("*.json"):
        for pattern in json.loads(path.read_text()) if path.name not in UNLISTED else ():
            alone = Heard({pattern: "x"})
            assert any(alone.say(text) == "x" for text in told), f"nobody says {pattern!r}"


def test_a_translation_uses_the_values_of_its_pattern() -> None:
    for pattern, said in read_catalogue(HEARD).items():
        names = [
            {name for _, name, _, _ in Formatter().parse(one) if name} for one in (pattern, said)
        ]
        assert names[0] == names[1], pattern


NAMES = """
    due fix_time on_duplicate id body cursor q from to limit state retry_if true false null http
    https url json utf unix base base64 openssl rand exp ops example com whsec_ host path res code
    status ud
    member bearer x authorization ms dq proxy webhook high normal low post get form replace keep
    reject content length accept encoding delayed ready running done dead cancelled ipv rfc yyyy mm
    dd hh ss byte secret
"""
"""Words of formats and values, which are the same in every language; so are names of fields."""

BAD_TOPICS: list[dict[str, Any]] = [
    {"name": 1},
    {"name": "x" * 300},
    {"name": "a\nb"},
    *({"callback": url} for url in ("", "a b", "ftp://x", "http://u:p@x", "http://", 1)),
    *({"callback": f"http://{host}"} for host in ("[", "[::1", "x:99999", "x:y", "x" * 3000)),
    {"method": "PUT", "format": "xml", "priority": "urgent"},
    *({"headers": one} for one in (1, {"Host": "x"}, {"DQ-X": "x"}, {"a b": "x"}, {"A": 1})),
    {"headers": {"A": "x", "a": "y"}},
    {"headers": {"A": "x\ny"}},
    {"headers": {"Accept-Encoding": "x"}},
    {"headers": {str(n): "x" for n in range(99)}},
    {"delay": -1, "timeout": 0, "max_retries": 0.5, "concurrency": 0, "rate": 0, "keep_done": -1},
    {"email": 1},
    {"email": ["x"]},
    {"email": ["a@b.c"] * 99},
    *({"backoff": one} for one in (1, "x", "exp:1s", "exp:9s,1s", "500d", "1s," * 200, "1" * 2000)),
    *({"retry_if": one} for one in (1, "{res.code}=1", "a", "(1", "1 &", "1 |", "'x", "{", ")")),
    *({"retry_if": one} for one in ("{x}", "{res.}", "(1>0)>1", "!" * 99, "1" * 500, "1" * 5000)),
    *({"secret": one} for one in ("x", "***", "", "whsec_!", "whsec_AAAA", 1)),
    {"enabled": 1, "paused": "x"},
    {"calback": "x"},
    {"zzzzzzzzz": "x"},
    {f"zz{n}": 1 for n in range(99)},
    {"topic": "other"},
]
BAD_JOBS: list[dict[str, Any]] = [
    {"topic": "a b"},
    {"topic": "."},
    {"topic": 1},
    {"id": "a b"},
    {"id": "x" * 999},
    {"id": 1},
    {"delay": "soon"},
    {"delay": -1},
    *({"due": one} for one in ("yesterday", -1, 10**16, "2030-02-30T00:00:00Z", 0.5)),
    *({"fix_time": one} for one in ("x", "2030-02-30 00:00:00", 1)),
    {"delay": 1, "due": 1},
    {"priority": "x"},
    {"timeout": 0},
    {"on_duplicate": "x"},
    {"key": "x" * 999},
    {"topik": 1},
]
BAD_SEARCHES = [("topic", " "), ("state", "x"), ("key", ""), ("from", "x"), ("from", "1 2")]
BAD_DOCUMENTS = (b"", b"[]", b"{", b'{"a":1,}', b"\xff", b"\xef\xbb\xbf{}", b"{]", b"[" * 99_999)


def messages_of_bad_input() -> Iterator[str]:
    for doc in BAD_TOPICS:
        yield from _messages(parse_topic, "t", json.dumps(doc).encode(), 10)
    for name in ("a b", "", ".", ".."):
        yield from _messages(parse_topic, name, b"{}", 10)
    for doc in BAD_JOBS:
        raw = json.dumps({"topic": "t", **doc}).encode()
        yield from _messages(read_job, raw, lambda name: Topic(topic=name), 0, 10_000)
    for raw in (*BAD_DOCUMENTS, b'{"topic":"\\ud800"}'):
        yield from _messages(read_job, raw, lambda name: Topic(topic=name), 0, 10_000)
        if raw != b'{"topic":"\\ud800"}':
            yield from _messages(parse_topic, "t", raw, 10)
    yield from _messages(read_due, b"{}", 0)
    for name, value in BAD_SEARCHES:
        yield from _messages(read_search, MultiDict([(name, value)]))


def _messages(act: Any, *given: Any) -> list[str]:
    try:
        act(*given)
    except Invalid as error:
        return [fault.message for fault in error.errors]
    except Refused as error:
        return [error.problem.detail]
    raise AssertionError(f"{given} was taken")


def test_nothing_english_is_left_of_what_bad_input_is_answered(chinese: Heard) -> None:
    same = {*NAMES.split(), *Topic.__struct_fields__}
    found = list(messages_of_bad_input())
    assert len(found) > 100
    for message in found:
        said = chinese.say(message)
        quoted = re.sub(r"'[^']*'|`[^`]*`|\"[^\"]*\"", "", said)
        words = {word.lower() for word in re.findall(r"[A-Za-z_]{2,}", quoted)}
        left = {word for word in words - same if not re.fullmatch(r"(.)\1*|zz\w*", word)}
        assert _CHINESE.search(said) and not left, (message, said)


def test_of_two_patterns_the_one_with_more_words_wins_and_values_stay() -> None:
    heard = Heard(
        {
            "{why} (at {n})": "{n}：{why}",
            "no {thing}": "没有 {thing}",
            "no {a} of {b}": "{b} 没有 {a}",
        }
    )
    assert heard.say("no milk (at 3)") == "3：没有 milk"
    assert heard.say("no milk of no cow") == "no cow 没有 milk"
    assert heard.say("no {x}{0}") == "没有 {x}{0}"
    assert heard.say("unheard of") == "unheard of"
    assert heard.say("no " + "x" * 2_000) == "no " + "x" * 2_000


def test_reasons_inside_of_texts_are_translated_and_english_stays_as_it_is() -> None:
    words = Catalogues(templates_folder() / "locale").words
    text = "SQL is away: {why}. Jobs go on; history is caught up later."
    assert "没有打开" in words["zh"].t(text, why="it was not opened")
    assert "没有打开" in words["zh"].say(Say(text, why=ValueError("it was not opened")))
    assert words["en"].say("it was not opened") == "it was not opened"
    assert words["zh"].t("{n} s", n=Say("ready")).startswith("就绪")


async def test_faults_on_chinese_pages_are_chinese(served: Served) -> None:
    browser = await served.visitor(**{"Accept-Language": "zh"})
    fields = {"topic": "..", "callback": "ftp://x", "retry_if": "{res.code}=1", "timeout": "0"}
    page = await browser.post("/topics/-/new", fields)
    assert page.status == 422
    for said in ("请换一个名字", "必须以 http:// 或 https:// 开头", "比较请用 ==", "从 0.1 到 600"):
        assert said in page.words
    checked = await browser.post("/topics/check", fields)
    assert "必须以 http://" in json.loads(checked.text)["faults"]["callback"]
    page = await browser.post("/jobs/new", {"topic": "nope", "body": "{"})
    assert "未注册" in page.words or "JSON 格式错误" in page.words
    page = await browser.get("/access?cursor=x")
    assert (page.status, "必须是上一页给出的游标" in page.words) == (422, True)
