"""JSON that is broken, deep, huge or sly: refused with its place, and never with an accident."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.api.fields import MAX_MASKED, mask_surrogates
from dq.api.job_fields import PushFields
from dq.api.problems import Refused
from dq.core.errors import Invalid, TopicUnknown
from tests.api.test_job_fields import read


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"topic":"t"', "ends too early"),
        (b'{"topic":"t"} {}', "trailing characters"),
        (b'{"topic":"t","body":NaN}', "byte 20"),
        (b'{"topic":"t","body":-Infinity}', "byte 2"),
        (b'{"topic":"t","body":01}', "byte 21"),
        (b'{"topic":"t","body":[1,]}', "trailing comma"),
        (b'{"topic":"t","body":"\t"}', "byte 21"),
        (b"{'topic':'t'}", "byte 1"),
        (b'\xef\xbb\xbf{"topic":"t"}', "byte order mark"),
        (b'{"topic":"t","body":"\xff"}', "no UTF-8 at byte 21"),
        (b'{"topic":"t","body":"\xed\xa0\x80"}', "no UTF-8 at byte 21"),
        (b'{"topic":"t","\xc0":1}', "no UTF-8 at byte 14"),
        ('{"topic":"t"}'.encode("utf-16"), "no UTF-8 at byte 0"),
        (b'{"topic":5,', "ends too early"),
        (b'{"topic":"t","body":"\\ud800", nonsense}', "byte 30"),
        (b"\x1f\x8b\x08", "no UTF-8"),
    ],
)
def test_what_is_no_json_is_a_400_with_the_place(raw: bytes, words: str) -> None:
    with pytest.raises(Refused) as caught:
        read(raw)
    assert caught.value.problem.status == 400
    assert words in caught.value.problem.detail


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"null", b"3", b"true"])
def test_json_that_is_no_object_is_invalid(raw: bytes) -> None:
    with pytest.raises(Invalid, match="must be a JSON object"):
        read(raw)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_deep_nesting_is_invalid(opening: bytes, depth: int) -> None:
    with pytest.raises(Invalid, match="nested too deeply"):
        read(b'{"topic":"t","body":' + opening * depth)


@pytest.mark.parametrize("escape", [b"\\ud800", b"\\udfff", b"\\uD83Dx", b"\\udE00\\ud83d"])
def test_half_a_surrogate_pair_is_invalid_and_its_field_is_named(escape: bytes) -> None:
    with pytest.raises(Invalid, match="half of a surrogate pair") as caught:
        read(b'{"topic":"t","body":["\\ud83d\\ude00 \\\\ud800", "%s"]}' % escape)
    assert [fault.field for fault in caught.value.errors] == ["body"]
    with pytest.raises(Invalid) as caught:
        read(b'{"topic":"t","id":"%s"}' % escape)
    assert [fault.field for fault in caught.value.errors] == ["id"]


@given(
    st.lists(
        st.sampled_from(["\\ud83d", "\\uDE00", "\\\\", '\\"', "\\u0041", "x", "\\n"]), max_size=12
    )
)
def test_lone_halves_are_found_exactly_where_python_finds_them(parts: list[str]) -> None:
    text = '"' + "".join(parts) + '"'
    lone = sum(0xD800 <= ord(character) <= 0xDFFF for character in json.loads(text))
    masked = mask_surrogates(text.encode())
    assert len(masked.replaced if masked else []) == lone
    if masked:
        assert len(masked.text) == len(text)
        json.loads(masked.text).encode()


def test_millions_of_lone_halves_are_not_all_looked_at() -> None:
    masked = mask_surrogates(b"\\ud800" * 100_000)
    assert masked is not None and len(masked.replaced) == MAX_MASKED


JSON_BYTES = st.recursive(
    st.sampled_from([b"null", b"true", b"-1", b"1e400", b"NaN", b"01", b'"\\ud800"', b'"\xff"'])
    | st.text(max_size=5).map(lambda text: json.dumps(text).encode())
    | st.integers().map(lambda number: b"%d" % number)
    | st.floats().map(lambda number: json.dumps(number).encode()),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[%s]" % b",".join(items))
        | st.dictionaries(st.sampled_from([b"a", b"b"]), inner, max_size=2).map(
            lambda items: b"{%s}" % b",".join(b'"%s":%s' % item for item in items.items())
        )
    ),
    max_leaves=5,
)
NAMES = st.sampled_from([*PushFields.__struct_fields__, "bdoy"])
PUSHES = st.dictionaries(NAMES, JSON_BYTES | st.just(b'"t"'), max_size=6).map(
    lambda fields: b"{%s}" % b",".join(b'"%s":%s' % (n.encode(), v) for n, v in fields.items())
)


@given(PUSHES | st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_raise_anything_but_a_refusal(raw: bytes) -> None:
    try:
        job = read(raw)
    except (Refused, Invalid, TopicUnknown):
        return
    whole = json.loads(raw)
    assert json.loads(job.body) == whole.get("body") or "body" in whole
    assert raw.count(job.body) or job.body == b"null"
