"""The parts of a parsed rule, and how each is true or false for a reply.

Plain frozen values without a parser: `rule` makes them. Numbers and numeric texts compare as
numbers; `==` on anything else wants the same type; ordering on anything else is false. Nothing
here raises, whatever a reply holds, and each part takes time linear in what it looks at.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

# Longer text is no number: turning digits into numbers isn't linear.
_MAX_NUMBER: Final = 400
_NUMERIC = re.compile(r"([+-]?[0-9]+)|[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INDEX = re.compile(r"[0-9]{1,9}")
_ORDERINGS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
COMPARISONS: Final = ("==", "!=", *_ORDERINGS)


class Reply(NamedTuple):
    """What a rule looks at: the HTTP status, and the reply as JSON, None if it is none."""

    status: int | None
    res: Any


class Operand(msgspec.Struct, frozen=True):
    """A value: fixed, the status, or what `path` leads to in the reply."""

    kind: str
    fixed: Any = None
    path: tuple[str, ...] = ()

    def value(self, reply: Reply) -> Any:
        if self.kind == "fixed":
            return self.fixed
        if self.kind == "status":
            return reply.status
        found = reply.res
        for name in self.path:
            found = _member(found, name)
        return found


class Seen(NamedTuple):
    """What a comparison came to for one reply, and the values that it compared."""

    holds: bool
    left: Any
    right: Any


class Comparison(msgspec.Struct, frozen=True):
    """One comparison, or one operand by itself (`sign` empty); `text` as it was written."""

    left: Operand
    sign: str
    right: Operand
    text: str

    def see(self, reply: Reply) -> Seen:
        left, right = self.left.value(reply), self.right.value(reply)
        if not self.sign:
            return Seen(left not in (None, False, 0, ""), left, right)
        return Seen(_compare(left, self.sign, right), left, right)

    def holds(self, reply: Reply) -> bool:
        return self.see(reply).holds


class Not(msgspec.Struct, frozen=True):
    """True when `inner` is false."""

    inner: Condition

    def holds(self, reply: Reply) -> bool:
        return not self.inner.holds(reply)


class Every(msgspec.Struct, frozen=True):
    """True when each part is."""

    parts: tuple[Condition, ...]

    def holds(self, reply: Reply) -> bool:
        return all(part.holds(reply) for part in self.parts)


class Either(msgspec.Struct, frozen=True):
    """True when one part is."""

    parts: tuple[Condition, ...]

    def holds(self, reply: Reply) -> bool:
        return any(part.holds(reply) for part in self.parts)


Condition = Comparison | Not | Every | Either


def decode_reply(body: bytes | None) -> Any:
    """The reply as JSON. One that can't be read is null, for whatever reason: that's the rule."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _member(container: Any, name: str) -> Any:
    if isinstance(container, dict):
        return container.get(name)
    if isinstance(container, list) and _INDEX.fullmatch(name) and int(name) < len(container):
        return container[int(name)]
    return None


def _compare(left: Any, sign: str, right: Any) -> bool:
    left_number, right_number = as_number(left), as_number(right)
    if left_number is not None and right_number is not None:
        left, right = left_number, right_number
    elif sign in _ORDERINGS:
        return False
    if sign in _ORDERINGS:
        return _ORDERINGS[sign](left, right)
    return _equal(left, right) == (sign == "==")


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    try:
        return bool(left == right)
    except RecursionError:
        # Two replies nested this deep aren't worth telling apart.
        return False


def as_number(value: Any) -> int | float | None:
    """The number that a number or a numeric text is, else None; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value
    match = _NUMERIC.fullmatch(value) if len(value) <= _MAX_NUMBER else None
    if match is None:
        return None
    return int(value) if match[1] else float(value)
