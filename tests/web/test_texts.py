"""Languages: every text is in every catalogue, and the right one is chosen."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from jinja2.ext import extract_from_ast
from markupsafe import Markup

import dq.web
from dq.web.pages import make_environment, templates_folder
from dq.web.texts import LANGUAGES, Catalogues, Words, exact_time, read_catalogue
from tests.web.conftest import Served

LOCALE = templates_folder() / "locale"
ZH = LOCALE / "zh"
SOURCES = sorted(Path(dq.web.__file__).parent.glob("*.py"))
TEMPLATES = sorted(templates_folder().rglob("*.html"))


def texts_of_templates() -> Iterator[str]:
    environment = make_environment(templates_folder())
    for path in TEMPLATES:
        tree = environment.parse(path.read_text())
        for _, function, found in extract_from_ast(tree, ("t", "tn"), babel_style=False):
            parts = found if isinstance(found, tuple) else (found,)
            for text in parts[: 2 if function == "tn" else 1]:
                assert text, f"{path}: t() wants its text as it stands"
                yield text


def texts_of_code() -> Iterator[str]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            wanted = {"t": 1, "Say": 1, "Said": 1, "tn": 2}.get(name, 0)
            for argument in node.args[:wanted]:
                if isinstance(argument, ast.Constant):
                    yield argument.value


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_text_is_in_the_catalogue_and_nothing_else_is() -> None:
    used = {*texts_of_templates(), *texts_of_code()}
    known = read_catalogue(ZH)
    assert sorted(used - known.keys()) == [], "these have no Chinese"
    assert sorted(known.keys() - used) == [], "these are said nowhere"


def test_no_two_files_of_a_language_know_the_same_text() -> None:
    seen: dict[str, str] = {}
    for path in sorted(ZH.glob("*.json")):
        for text in msgspec.json.decode(path.read_bytes(), type=dict[str, str]):
            assert text not in seen, f"{text!r} is in {path.name} and {seen[text]}"
            seen[text] = path.name


def test_translations_say_something_and_use_the_same_values() -> None:
    for text, translation in read_catalogue(ZH).items():
        assert translation.strip(), text
        assert placeholders(text) == placeholders(translation), text


def test_templates_say_nothing_past_the_catalogue() -> None:
    """Words between tags that no t() says would stay English for ever."""
    for path in TEMPLATES:
        text = re.sub(r"(?s)\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", path.read_text())
        words = re.findall(r"[A-Za-z]{2,}", re.sub(r"(?s)<[^>]*>|[\w-]+=\"[^\"]*\"", " ", text))
        assert set(words) <= {"dq", "ms"}, path


@pytest.mark.parametrize(
    ("cookie", "header", "code"),
    [
        ("", "", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "en-GB,zh;q=0.5", "en"),
        ("", "fr,de;q=0.9,zh-TW;q=0.2", "zh"),
        ("", "fr", "en"),
        ("", "zh;q=0,en;q=0.1", "en"),
        ("", "zh;q=x, ;;;,=", "en"),
        ("zh", "en", "zh"),
        ("en", "zh", "en"),
        ("../x", "zh", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_what_the_browser_likes(
    cookie: str, header: str, code: str
) -> None:
    assert Catalogues(LOCALE).choose(cookie, header).code == code


async def test_pages_come_in_both_languages_and_can_be_switched(served: Served) -> None:
    browser = served.browser(**{"Accept-Language": "zh-CN"})
    page = await browser.get("/login")
    assert '<html lang="zh-CN"' in page.text and "登录" in page.words
    reply = await browser.post("/preferences", {"language": "en", "back": "/login?next=/jobs"})
    assert reply.location == "/login?next=/jobs"
    assert "Log in" in (await browser.get("/login")).words
    await browser.post("/preferences", {"language": "zh", "back": "//evil"})
    await browser.log_in()
    assert "总览" in (await browser.get("/")).words


async def test_colours_can_be_switched(served: Served) -> None:
    browser = served.browser()
    assert 'data-theme="auto"' in (await browser.get("/login")).text
    await browser.post("/preferences", {"theme": "dark"})
    assert 'data-theme="dark"' in (await browser.get("/login")).text
    await browser.post("/preferences", {"theme": '"><script>'})
    assert 'data-theme="dark"' in (await browser.get("/login")).text


def test_instants_are_said_as_seen_from_now() -> None:
    english, chinese = (Catalogues(LOCALE).words[code] for code in LANGUAGES)
    now_ms = 1_800_000_000_000
    said = [english.relative(now_ms + ms, now_ms) for ms in (0, -999, -3_000, 90_000, -172_800_000)]
    assert said == ["just now", "just now", "3 s ago", "in 1 min", "2 d ago"]
    assert chinese.relative(now_ms - 60_000, now_ms) == "1 分钟前"
    assert [english.span(s) for s in (0, 59.9, 60, 3_661, 90_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h 1 min",
        "1 d 1 h",
    ]
    sizes = [english.size(count) for count in (None, 0, 1023, 1536, 50 * 2**20)]
    assert sizes == ["–", "0 B", "1023 B", "1.5 KB", "50 MB"]
    assert exact_time(now_ms + 7)[19:23] == ".007"


def test_values_are_escaped_where_markup_is_among_them() -> None:
    words = Words("en", {})
    said = words.t("{a} and {b}", a=Markup("<b>x</b>"), b="<i>")
    assert said == "<b>x</b> and &lt;i&gt;" and isinstance(said, Markup)
    assert not isinstance(words.t("{b}", b="<i>"), Markup)
    assert words.t("{as it is}") == "{as it is}"
