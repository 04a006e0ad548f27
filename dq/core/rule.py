"""retry_if: a condition over an endpoint's reply, in a small language of its own.

    rule       = condition { "||" condition }          && binds tighter than ||
    condition  = comparison { "&&" comparison }
    comparison = primary [ ("==" | "!=" | ">" | ">=" | "<" | "<=") primary ]
    primary    = "!" primary | "(" rule ")" | operand  only operands are compared
    operand    = {res} | {res.a.0} | {status} | number | 'text' | "text" | true | false | null

How values compare: see rule_parts. An operand alone is false if it is null, false, 0 or ''.
Nothing is ever run as Python. Evaluating takes time linear in rule and reply, and never raises:
a reply that can't be read is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dq.core.rule_parts import (
    COMPARISONS,
    Comparison,
    Condition,
    Either,
    Every,
    Not,
    Operand,
    Reply,
    Seen,
    as_number,
    decode_reply,
)

MAX_TEXT: Final = 4096
MAX_DEPTH: Final = 64

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<reference>\{[^{}]*\})"
    r"|(?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<sign>==|!=|>=|<=|>|<|&&|\|\||!|\(|\))"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(['\"\\])")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_HINTS = {"=": "; compare with ==", "&": "; write &&", "|": "; write ||"}


class RuleError(ValueError):
    """A mistake in a rule. `message` says what; `position` counts characters from 1."""

    def __init__(self, message: str, position: int) -> None:
        self.message = message
        self.position = position
        super().__init__(f"{message} (at character {position})")


class Rule(msgspec.Struct, frozen=True):
    """A parsed rule. Without a condition (empty text) it is never true."""

    text: str
    condition: Condition | None = None
    tests: tuple[Comparison, ...] = ()

    def evaluate(self, status: int | None, body: bytes | None) -> bool:
        """True if the job is to be retried; `body` None stands for a reply that was cut."""
        if self.condition is None:
            return False
        return self.condition.holds(Reply(status, decode_reply(body)))

    def explain(self, status: int | None, body: bytes | None) -> list[tuple[Comparison, Seen]]:
        """Each comparison in the order in which they are written, and what it came to for this
        reply, also where the whole was decided before its turn."""
        reply = Reply(status, decode_reply(body))
        return [(test, test.see(reply)) for test in self.tests]

    @property
    def reads_body(self) -> bool:
        """Whether any part of it looks into the reply; one that doesn't sees its status alone."""
        return any("res" in (test.left.kind, test.right.kind) for test in self.tests)


def parse_rule(text: str) -> Rule:
    """The rule that `text` says; raises RuleError with the place of the first mistake."""
    if len(text) > MAX_TEXT:
        raise RuleError(f"the rule is longer than {MAX_TEXT} characters", MAX_TEXT + 1)
    tokens = _tokenize(text)
    if len(tokens) == 1:
        return Rule(text)
    parser = _Parser(text, tokens)
    return Rule(text, parser.parse(), tuple(parser.tests))


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _Span(NamedTuple):
    """What was parsed, and where it stands in the text."""

    node: Operand | Condition
    start: int
    end: int


class _Parser:
    """Recursive descent; each method leaves `at` behind what it has read."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.tests: list[Comparison] = []

    def parse(self) -> Condition:
        whole = self._condition(self._either())
        token = self.tokens[self.at]
        if token.kind != "end":
            raise RuleError(_unexpected(token), token.start + 1)
        return whole

    def _either(self) -> _Span:
        return self._chain("||", self._every, Either)

    def _every(self) -> _Span:
        return self._chain("&&", self._comparison, Every)

    def _chain(
        self, sign: str, part: Callable[[], _Span], join: type[Either] | type[Every]
    ) -> _Span:
        first = last = part()
        if self.tokens[self.at].text != sign:
            return first
        parts = [self._condition(first)]
        while self._take(sign):
            last = part()
            parts.append(self._condition(last))
        return _Span(join(tuple(parts)), first.start, last.end)

    def _comparison(self) -> _Span:
        left = self._primary()
        sign = self.tokens[self.at]
        if sign.kind != "sign" or sign.text not in COMPARISONS:
            return left
        self.at += 1
        right = self._primary()
        if not isinstance(left.node, Operand) or not isinstance(right.node, Operand):
            message = f"{sign.text} compares values, not conditions; put it in ( ) or use && ||"
            raise RuleError(message, sign.start + 1)
        text = self.text[left.start : right.end]
        return _Span(self._test(left.node, sign.text, right.node, text), left.start, right.end)

    def _primary(self) -> _Span:
        token = self.tokens[self.at]
        self.at += 1
        if token.kind == "sign" and token.text in ("!", "("):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise RuleError(f"nested deeper than {MAX_DEPTH}", token.start + 1)
            span = self._negation(token) if token.text == "!" else self._group(token)
            self.depth -= 1
            return span
        if token.kind in ("sign", "end"):
            raise RuleError(_unexpected(token), token.start + 1)
        return _Span(_operand(token), token.start, token.start + len(token.text))

    def _negation(self, token: _Token) -> _Span:
        inner = self._primary()
        return _Span(Not(self._condition(inner)), token.start, inner.end)

    def _group(self, token: _Token) -> _Span:
        inner = self._either()
        closing = self.tokens[self.at]
        if not self._take(")"):
            message = f"{_unexpected(closing)}; the ( at character {token.start + 1} is open"
            raise RuleError(message, closing.start + 1)
        return _Span(inner.node, token.start, closing.start + 1)

    def _take(self, sign: str) -> bool:
        token = self.tokens[self.at]
        found = token.kind == "sign" and token.text == sign
        self.at += found
        return found

    def _condition(self, span: _Span) -> Condition:
        if isinstance(span.node, Operand):
            return self._test(span.node, "", span.node, self.text[span.start : span.end])
        return span.node

    def _test(self, left: Operand, sign: str, right: Operand, text: str) -> Comparison:
        test = Comparison(left, sign, right, text)
        self.tests.append(test)
        return test


def _tokenize(text: str) -> list[_Token]:
    """The tokens of a rule, `end` last."""
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise RuleError(_unreadable(text[at]), at + 1)
        if match.lastgroup not in ("space", None):
            tokens.append(_Token(str(match.lastgroup), match[0], at))
        at = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _unreadable(char: str) -> str:
    if char in "'\"":
        return f"the text that begins here has no closing {char}"
    if char == "{":
        return "the { that begins here has no closing }"
    return f"unexpected {char!r}{_HINTS.get(char, '')}"


def _unexpected(token: _Token) -> str:
    return "the rule ends too early" if token.kind == "end" else f"unexpected {token.text[:40]!r}"


def _operand(token: _Token) -> Operand:
    if token.kind == "number":
        number = as_number(token.text)
        if number is None:
            raise RuleError("the number that begins here is too long", token.start + 1)
        return Operand("fixed", number)
    if token.kind == "text":
        return Operand("fixed", _ESCAPED.sub(r"\1", token.text[1:-1]))
    if token.kind == "reference":
        return _reference(token)
    if token.text not in _WORDS:
        message = f"unknown word {token.text[:40]!r}; text stands in quotes"
        raise RuleError(message, token.start + 1)
    return Operand("fixed", _WORDS[token.text])


def _reference(token: _Token) -> Operand:
    names = token.text[1:-1].strip().split(".")
    if names == ["status"]:
        return Operand("status")
    if names[0] != "res":
        message = f"unknown {token.text[:40]}; there are {{res}}, {{res.member}} and {{status}}"
        raise RuleError(message, token.start + 1)
    if not all(names):
        raise RuleError(f"{token.text[:40]} has an empty name in it", token.start + 1)
    return Operand("res", path=tuple(names[1:]))
