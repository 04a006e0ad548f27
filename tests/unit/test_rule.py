"""retry_if: what it means, where a mistake is, and that nothing a reply holds can hurt."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.core.rule import MAX_DEPTH, MAX_TEXT, RuleError, parse_rule


def holds(text: str, reply: Any = None, status: int | None = 200) -> bool:
    return parse_rule(text).evaluate(status, msgspec.json.encode(reply))


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_rule_is_never_true(text: str) -> None:
    rule = parse_rule(text)
    assert not rule.evaluate(200, b"{}") and rule.explain(200, b"{}") == []


def test_the_contracts_examples() -> None:
    assert holds("{res.code}!=200", {"code": 500})
    assert not holds("{res.code}!=200", {"code": 200})
    both = "{res.code}!=200 && {res.data.status}!=2"
    assert holds(both, {"code": 1, "data": {"status": 1}})
    assert not holds(both, {"code": 1, "data": {"status": 2}})
    either = "{res.code}==200 && {res.data.status}==2 || {res.data.msg}=='failed'"
    assert holds(either, {"code": 200, "data": {"status": 2}})
    assert holds(either, {"code": 0, "data": {"msg": "failed"}})
    assert not holds(either, {"code": 200, "data": {"status": 1, "msg": ""}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200=='200'", True),
        ("'200'=='200.0'", True),
        ("1.5 == 1.50", True),
        ("-1 < 0", True),
        ("'9' < '10'", True),
        ("9007199254740993 == 9007199254740992", False),
        ("1e3 == 1000", True),
        ("' 1' == 1", False),
        ("'1_0' == 10", False),
        ("'0x10' == 16", False),
        ("'nan' == 'nan'", True),
        ("'inf' > 1", False),
        ("'a' == \"a\"", True),
        ("'a' < 'b'", False),
        ("'a' >= 'a'", False),
        ("true == 1", False),
        ("true == 'true'", False),
        ("true == true", True),
        ("true >= true", False),
        ("false == 0", False),
        ("null == null", True),
        ("null == 0", False),
        ("null == ''", False),
        ("null >= null", False),
        ("null != 200", True),
        ("'' == 0", False),
        (r"'it\'s' == " + '"it' + "'" + 's"', True),
        (r"'a\\b' == 'a\b'", True),
    ],
)
def test_how_values_compare(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize("value", [None, False, 0, 0.0, ""])
def test_a_false_operand_alone(value: Any) -> None:
    assert not holds("{res.a}", {"a": value})


@pytest.mark.parametrize("value", [True, 1, -0.5, "0", "false", [], {}])
def test_a_true_operand_alone(value: Any) -> None:
    assert holds("{res.a}", {"a": value})


def test_references_lead_into_the_reply() -> None:
    reply = {"list": [{"x": 1}, {"x": 2}], "0": "zero", "状态": "好", "a b": 1}
    assert holds("{res.list.1.x}==2", reply)
    assert holds("{res.0}=='zero'", reply)
    assert holds("{res.状态}=='好'", reply)
    assert holds("{res.a b}==1", reply)
    assert holds("{ res.list.0.x } == 1", reply)
    assert holds("{res}=='ok'", "ok")
    assert holds("{res.0}==5", [5])
    assert holds("{status}>=200 && {status}<300", status=204)
    assert holds("{status}==null", status=None)


@pytest.mark.parametrize(
    "path",
    ["x", "list.9", "list.-1", "list.x", "text.0", "list.0.0.0", "none.a", "list." + "9" * 99],
)
def test_what_is_missing_is_null(path: str) -> None:
    assert holds(f"{{res.{path}}}==null", {"list": [[1]], "text": "abc", "none": None})


def test_lists_and_objects_equal_their_like_only() -> None:
    reply = {"a": [1, {"x": 2}], "b": [1, {"x": 2}], "c": {}}
    assert holds("{res.a}=={res.b}", reply)
    assert holds("{res.a}!={res.c}", reply)
    assert not holds("{res.a}>{res.b}", reply)
    assert not holds("{res.c}==null", reply)


def test_precedence() -> None:
    assert holds("true || false && false")
    assert not holds("(true || false) && false")
    assert not holds("!true || false")
    assert holds("!(1==2)") and holds("!!true") and holds("!{res.ok}", {"ok": False})
    assert holds("({res.code}) == 200", {"code": 200})


def test_explain_says_which_part_was_true() -> None:
    text = "{res.code} == 200 && ({res.data.status}==2 || !{res.ok}) || {res.msg}=='failed'"
    explained = parse_rule(text).explain(200, b'{"code":200,"ok":true,"data":{"status":1}}')
    assert [(test.text, seen.holds) for test, seen in explained] == [
        ("{res.code} == 200", True),
        ("{res.data.status}==2", False),
        ("{res.ok}", True),
        ("{res.msg}=='failed'", False),
    ]
    assert [(seen.left, seen.right) for _, seen in explained] == [
        (200, 200),
        (1, 2),
        (True, True),
        (None, "failed"),
    ]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("{res.code}=200", 11, "compare with =="),
        ("1==1 & 2==2", 6, "write &&"),
        ("1==1 | 2==2", 6, "write ||"),
        ("{res.code", 1, "closing }"),
        ("{res..a}", 1, "empty name"),
        ("{res.}", 1, "empty name"),
        ("1=={code}", 4, "unknown {code}"),
        ("{status.x}==1", 1, "unknown"),
        ("1=='a", 4, "closing '"),
        ("{res.msg}==failed", 12, "text stands in quotes"),
        ("(1==1", 6, "ends too early"),
        ("1==1)", 5, "unexpected ')'"),
        ("1==", 4, "ends too early"),
        ("==1", 1, "unexpected '=='"),
        ("1==1 &&", 8, "ends too early"),
        ("1 2", 3, "unexpected '2'"),
        ("1<2<3", 4, "unexpected '<'"),
        ("!{res.a}==1", 9, "not conditions"),
        ("(1==1)==true", 7, "not conditions"),
        ("()", 2, "unexpected ')'"),
        ("__import__('os')", 1, "unknown word"),
        ("1==$x", 4, "unexpected '$'"),
        ("9" * 401, 1, "too long"),
        ("!" * (MAX_DEPTH + 1) + "1", MAX_DEPTH + 1, "deeper than 64"),
        ("(" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "deeper than 64"),
        ("1" * (MAX_TEXT + 1), MAX_TEXT + 1, "longer than 4096"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(RuleError, match=r"\(at character \d+\)$") as caught:
        parse_rule(text)
    assert caught.value.position == position
    assert words in caught.value.message


def test_the_greatest_depth_is_still_read() -> None:
    assert holds("(" * MAX_DEPTH + "1==1" + ")" * MAX_DEPTH)
    assert holds("!" * MAX_DEPTH + "1")


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"OK",
        b"[" * 100_000,
        b'{"a":' * 20_000,
        b"9" * 65_536,
        b"NaN",
        b'{"a":NaN}',
        b"1e999",
        b'"\xff"',
        b'"\\ud800"',
        b'{"a":1',
        b'{"a":1} x',
        b"\xef\xbb\xbf{}",
    ],
)
def test_a_reply_that_cannot_be_read_is_null(body: bytes | None) -> None:
    assert parse_rule("{res}==null && {res.a}==null").evaluate(200, body)


def test_replies_nested_to_the_limit_are_compared_without_harm() -> None:
    deep = b"[" * 900 + b"]" * 900
    rule = parse_rule("{res.a}=={res.b} || {res.a}!={res.b}")
    assert rule.evaluate(200, b'{"a":' + deep + b',"b":' + deep + b"}")


_part = "{res.a}=={res.b}||"
_wide = (_part * (MAX_TEXT // len(_part))).removesuffix("||")


@pytest.mark.parametrize(
    "values",
    [
        ("9" * 32_000, "9" * 31_999 + "8"),
        ("1" + " " * 32_000, "2"),
        ("0." + "0" * 32_000, "1"),
        ([0] * 16_000, [0] * 15_999 + [1]),
        (["x"] * 8_000, {}),
    ],
)
def test_the_widest_rule_takes_little_time_on_a_hostile_reply(values: tuple[Any, Any]) -> None:
    body = msgspec.json.encode({"a": values[0], "b": values[1]})
    rule = parse_rule(_wide)
    started = time.process_time()
    assert not rule.evaluate(200, body)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        "'" + "\\" * 4000,
        "{" * 4000,
        "!" * 4000,
        "1" * 4000,
        "1.1" * 1300,
        "1e" * 2000,
        "(1||" * 1000,
    ],
)
def test_hostile_rules_are_refused_in_little_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(RuleError):
        parse_rule(text)
    assert time.process_time() - started < 0.5


_SCRAPS = (
    "{res.code} {res} {status} {res.0.a} == != > >= < <= && || ! ( ) 1 -2.5 'a' \"1\" true "
    "false null { } ' x"
)
_pieces = st.lists(st.sampled_from(_SCRAPS.split()), max_size=30).map(" ".join)
_replies = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
)


@given(st.text(max_size=50) | _pieces, st.binary(max_size=50) | _replies.map(msgspec.json.encode))
def test_no_text_and_no_reply_raise_anything_but_rule_error(text: str, body: bytes) -> None:
    try:
        rule = parse_rule(text)
    except RuleError as error:
        assert 1 <= error.position <= len(text) + 1
        return
    rule.evaluate(None, body)
    assert all(test.text in text for test, _ in rule.explain(200, body))


_leaves = st.sampled_from([("1==1", True), ("'a'>1", False), ("true", True), ("null", False)])
_logic = st.recursive(
    _leaves,
    lambda inner: (
        st.builds(lambda a, b: (f"({a[0]}) && ({b[0]})", a[1] and b[1]), inner, inner)
        | st.builds(lambda a, b: (f"({a[0]}) || ({b[0]})", a[1] or b[1]), inner, inner)
        | st.builds(lambda a: (f"!({a[0]})", not a[1]), inner)
    ),
    max_leaves=12,
)


@given(_logic)
def test_and_or_not_are_pythons(case: tuple[str, bool]) -> None:
    assert holds(case[0]) is case[1]


@given(st.integers() | st.floats(-1e15, 1e15), st.integers() | st.floats(-1e15, 1e15))
def test_numbers_order_as_numbers_whether_text_or_not(a: float, b: float) -> None:
    reply = {"a": a, "b": str(b)}
    assert holds("{res.a}<{res.b}", reply) is (a < b)
    assert holds("{res.a}=={res.b}", reply) is (a == b)
