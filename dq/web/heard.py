"""What other parts of dq, and what they rest on, said in English, in the reader's language.

The API, the logs and the command line speak English, and so do the errors that pages pass on. A
catalogue holds them as patterns, `must be at most {n} characters`, and each value goes into the
translation as it is. One of the name `why` is such a sentence again, `n` is a number, `char` a
single character. Of two patterns that fit, the one with more words of its own wins. What no pattern
fits is said as it was heard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from string import Formatter

MOST_CHARS = 1_000
"""Longer ones are no sentences of dq; matching them would cost time."""

_SHAPES = {"n": r"[\d.,]+", "char": "."}


class Heard:
    """A language's patterns. `catalogue`: English pattern -> translation."""

    def __init__(self, catalogue: Mapping[str, str]) -> None:
        in_order = sorted(catalogue, key=_own_chars, reverse=True)
        self._patterns = [(_compile(text), catalogue[text]) for text in in_order]
        self.say = lru_cache(maxsize=1_000)(self._say)

    def _say(self, text: str) -> str:
        if len(text) > MOST_CHARS:
            return text
        for pattern, said in self._patterns:
            if match := pattern.fullmatch(text):
                return said.format(**self._values(match))
        return text

    def _values(self, match: re.Match[str]) -> dict[str, str]:
        values = match.groupdict()
        if "why" in values:
            values["why"] = self.say(values["why"])
        return values


def _compile(text: str) -> re.Pattern[str]:
    parts = []
    for own, name, _, _ in Formatter().parse(text):
        parts.append(re.escape(own))
        if name is not None:
            parts.append(f"(?P<{name}>{_SHAPES.get(name, '.+?')})")
    return re.compile("".join(parts), re.DOTALL)


def _own_chars(text: str) -> int:
    return sum(len(own) for own, _, _, _ in Formatter().parse(text))
