"""What pages say, in the reader's language.

The English text is the key: `t("Log in")` says itself in English and is looked up in Chinese below
templates/locale/zh/, where each page has a file and common.json holds the rest. Values go in by
name, `{n}`, and are escaped by the template like any other; a text that no catalogue has is said in
English rather than not at all, and a test keeps that from happening. Code that doesn't know its
reader yet says `Say("…")`, translated when it is shown.

What other parts of dq said, in English as always, is a plain str, and each value of the name `why`:
such a sentence is translated by its pattern (dq/web/heard.py, templates/locale/zh/heard/).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from markupsafe import Markup, escape

from dq.core.clock import local_text
from dq.web.heard import Heard

LANGUAGES = {"en": "English", "zh": "中文"}
_TAGS = {"en": "en", "zh": "zh-CN"}
_MOST_HEADER_CHARS = 1000
_SIZES = ((2**40, "TB"), (2**30, "GB"), (2**20, "MB"), (2**10, "KB"))


class Say:
    """A text for whoever will read it, with the values that go into it."""

    def __init__(self, text: str, **values: object) -> None:
        self.text = text
        self.values = values


_UNITS = (
    (86_400, Say("{n} d"), Say("{n} d ago"), Say("in {n} d")),
    (3_600, Say("{n} h"), Say("{n} h ago"), Say("in {n} h")),
    (60, Say("{n} min"), Say("{n} min ago"), Say("in {n} min")),
    (1, Say("{n} s"), Say("{n} s ago"), Say("in {n} s")),
)

_STATES = {
    "delayed": Say("delayed"),
    "ready": Say("ready"),
    "running": Say("running"),
    "done": Say("done"),
    "dead": Say("dead"),
    "cancelled": Say("cancelled"),
    "starting": Say("starting"),
    "stopping": Say("stopping"),
    "ok": Say("ok"),
    "away": Say("away"),
}


class Words:
    """One language."""

    def __init__(
        self, code: str, catalogue: Mapping[str, str], heard: Mapping[str, str] | None = None
    ) -> None:
        self.code = code
        self.tag = _TAGS[code]
        self._catalogue = catalogue
        self._heard = Heard(heard or {})

    def t(self, text: str, **values: object) -> str:
        """The text with its values; Markup where one of them is, and then safe as a whole."""
        said = self._catalogue.get(text, text)
        values = {name: self._value(name, value) for name, value in values.items()}
        if any(isinstance(value, Markup) for value in values.values()):
            return escape(said).format(**values)
        return said.format(**values) if values else said

    def _value(self, name: str, value: object) -> object:
        if isinstance(value, Say):
            return self.say(value)
        return self.say(str(value)) if name == "why" and not isinstance(value, Markup) else value

    def tn(self, one: str, many: str, n: int, **values: object) -> str:
        """`one` for a single thing, `many` for any other number; `{n}` is the number."""
        return self.t(one if n == 1 else many, n=self.number(n), **values)

    def say(self, what: Say | str) -> str:
        """A text that was chosen before its reader was known; a plain str is what another part of
        dq said."""
        if isinstance(what, Say):
            return self.t(what.text, **what.values)
        return self._heard.say(what)

    def state(self, name: str) -> str:
        """A job's, process's or node's state; one that has no word is said as it is."""
        said = _STATES.get(name)
        return name if said is None else self.say(said)

    def number(self, n: int) -> str:
        """12,345 in both languages."""
        return f"{n:,}"

    def span(self, seconds: float) -> str:
        """A length of time, in its largest unit and the next."""
        whole = max(0, int(seconds))
        for place, (unit_s, text, _, _) in enumerate(_UNITS):
            if whole >= unit_s:
                said = self.t(text.text, n=whole // unit_s)
                if place + 1 < len(_UNITS) and (rest := whole % unit_s // _UNITS[place + 1][0]):
                    said += " " + self.t(_UNITS[place + 1][1].text, n=rest)
                return said
        return self.t("{n} s", n=0)

    def relative(self, at_ms: int, now_ms: int) -> str:
        """An instant as seen from now: 3 min ago, in 2 h."""
        seconds = abs(now_ms - at_ms) // 1000
        if seconds < 1:
            return self.t("just now")
        unit_s, _, past, future = next(unit for unit in _UNITS if seconds >= unit[0])
        return self.t((past if at_ms <= now_ms else future).text, n=seconds // unit_s)

    def clock(self, at_ms: int) -> str:
        """An instant of today, to the minute, in the server's time zone: 14:05."""
        return datetime.fromtimestamp(at_ms // 1000).strftime("%H:%M")

    def exact(self, at_ms: int) -> str:
        """An instant to the second, in the server's time zone."""
        return local_text(at_ms)

    def size(self, count: int | None) -> str:
        """Bytes in a readable unit; a dash when not known."""
        if count is None:
            return "–"
        for unit, name in _SIZES:
            if count >= unit:
                return f"{count / unit:.{0 if count >= 10 * unit else 1}f} {name}"
        return f"{count} B"


class Catalogues:
    """All languages; read once, at start. `folder` holds the catalogues, a folder a language."""

    def __init__(self, folder: Path) -> None:
        self.words = {
            code: Words(
                code, read_catalogue(folder / code), read_catalogue(folder / code / "heard")
            )
            for code in LANGUAGES
        }

    def choose(self, cookie: str, accept_language: str) -> Words:
        """The language that was chosen, else the one the browser likes best, else English."""
        if cookie in self.words:
            return self.words[cookie]
        return self.words[_liked_best(accept_language)]


def read_catalogue(folder: Path) -> dict[str, str]:
    """English text -> its translation, from all files of a folder; of English there is none."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        found.update(msgspec.json.decode(path.read_bytes(), type=dict[str, str]))
    return found


def exact_time(at_ms: int) -> str:
    """An instant to the millisecond in the server's time zone, which it names."""
    local = datetime.fromtimestamp(at_ms // 1000).astimezone()
    zone = local.strftime("%z")
    return f"{local:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d} {zone[:3]}:{zone[3:]}"


def _liked_best(header: str) -> str:
    """Of the header's languages with their weights; the first of equals."""
    best, best_weight = "en", 0.0
    for part in header[:_MOST_HEADER_CHARS].split(","):
        tag, _, weight_text = part.strip().partition(";")
        code = tag.strip().lower().partition("-")[0]
        weight = _weight(weight_text)
        if code in LANGUAGES and weight > best_weight:
            best, best_weight = code, weight
    return best


def _weight(text: str) -> float:
    name, _, number = text.strip().partition("=")
    if not name:
        return 1.0
    try:
        return float(number) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
