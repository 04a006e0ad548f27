"""What a push may say, field by field, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dq.api.ids import new_id
from dq.api.job_fields import read_due, read_job
from dq.api.problems import Refused
from dq.core.errors import Invalid, TopicUnknown
from dq.core.topic import Topic
from dq.queue.schedule import NewJob

NOW = 1_700_000_000_123
TOPIC = Topic(topic="t", delay=1.5, priority="low")


def topic_of(name: str) -> Topic:
    if name != "t":
        raise TopicUnknown(name)
    return TOPIC


def read(raw: bytes) -> NewJob:
    return read_job(raw, topic_of, NOW, 100_000)


def push(**fields: Any) -> NewJob:
    return read(json.dumps({"topic": "t", **fields}).encode())


def faults(**fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        push(**fields)
    return {fault.field: fault.message for fault in caught.value.errors}


def test_only_the_topic_is_required() -> None:
    job = push()
    assert (job.topic, job.body, job.key, job.on_duplicate) == ("t", b"null", "", "replace")
    assert (job.due_ms, job.absolute) == (NOW + 1500, False)
    assert (job.priority, job.timeout_ms) == (2, 0)


def test_every_field_at_once() -> None:
    job = push(
        id="order-42",
        body={"a": 1},
        due=NOW + 60_000,
        priority="high",
        timeout=0.1,
        on_duplicate="keep",
        key="customer 7",
    )
    assert job == NewJob(
        topic="t",
        id="order-42",
        body=b'{"a": 1}',
        due_ms=NOW + 60_000,
        absolute=True,
        priority=0,
        timeout_ms=100,
        key="customer 7",
        on_duplicate="keep",
    )


@pytest.mark.parametrize(
    ("delay", "ms"), [(0, 0), (600, 600_000), (0.0011, 2), (1.001, 1001), (316_224_000, 316_224e6)]
)
def test_a_delay_counts_from_now_and_is_never_cut_short(delay: float, ms: int) -> None:
    job = push(delay=delay)
    assert (job.due_ms, job.absolute) == (NOW + ms, False)


@pytest.mark.parametrize("delay", ["1", True, None, -0.001, 316_224_001, 1e300, [], {}])
def test_a_bad_delay_is_named(delay: object) -> None:
    assert faults(delay=delay) == {"delay": "must be a number of seconds from 0 to 316224000"}


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 5000, b"1e999999999"])
@pytest.mark.parametrize("field", ["delay", "due", "timeout"])
def test_a_number_beyond_all_bounds_is_named(field: str, number: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        read(b'{"topic":"t","%s":%s}' % (field.encode(), number))
    assert [fault.field for fault in caught.value.errors] == [field]


@pytest.mark.parametrize("due", [0, NOW - 1, NOW, 9_007_199_254_740])
def test_due_is_taken_as_it_is_even_in_the_past(due: int) -> None:
    job = push(due=due)
    assert (job.due_ms, job.absolute) == (due, True)


@pytest.mark.parametrize(
    "due",
    [
        *(-1, 9_007_199_254_741, 2**64, 292_000_000 * 31_556_952_000, 1.5, 1e3, True, None),
        *("", "soon", "1700000000000", "2026-11-21", "2026-11-21T06:00:00"),
        *("2026-02-30T06:00:00Z", "1969-12-31T23:59:59Z", "2300-01-01T00:00:00Z"),
        "٢٠٢٦-11-21T06:00:00Z",
    ],
)
def test_a_bad_due_is_named(due: object) -> None:
    assert list(faults(due=due)) == ["due"]


def test_only_one_time_may_be_given() -> None:
    assert list(faults(delay=1, due=2)) == ["delay", "due"]
    assert list(faults(due=2, fix_time="2026-11-21 06:00:00")) == ["due", "fix_time"]


def test_fix_time_is_an_instant_too() -> None:
    assert push(fix_time="2026-11-21 06:00:00").absolute


@pytest.mark.parametrize(
    "id",
    ["x", "é", "a/b?c%2F", "..", "😀" * 256, "日本", "%00", '"><svg/onload=…>', "';DROP--"],
)
def test_an_id_of_printable_characters_is_taken(id: str) -> None:
    assert push(id=id).id == id


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("", "has 0 characters"),
        ("a" * 257, "has 257 characters"),
        ("a b", "U+0020 as its character 2"),
        ("a\0", "U+0000"),
        ("a\nb", "U+000A"),
        ("\u200f", "U+200F"),
        ("\u00a0", "U+00A0"),
        ("\u2028", "U+2028"),
        ("\x1b[31m", "U+001B"),
        (42, "must be a text"),
        (None, "must be a text"),
    ],
)
def test_any_other_id_is_refused_with_the_reason(id: object, why: str) -> None:
    assert why in faults(id=id)["id"]


def test_ids_made_here_sort_by_time_and_differ() -> None:
    made = [new_id(NOW + tick) for tick in range(100)]
    assert made == sorted(made)
    assert len({new_id(NOW) for _ in range(1000)}) == 1000
    assert all(len(id) == 26 and id.isalnum() and id.isascii() for id in made)
    assert new_id(0).startswith("0000000000") and new_id(2**48 - 1).startswith("7ZZZZZZZZZ")


@pytest.mark.parametrize("timeout", [0.1, 3, 600])
def test_a_timeout_within_bounds_is_taken(timeout: float) -> None:
    assert push(timeout=timeout).timeout_ms == timeout * 1000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout", 0),
        ("timeout", 0.09),
        ("timeout", 600.1),
        ("timeout", "3"),
        ("priority", "urgent"),
        ("priority", 1),
        ("on_duplicate", "ignore"),
        ("key", "k" * 257),
        ("key", "a\0b"),
        ("key", 7),
        ("topic", ""),
        ("topic", "a b"),
        ("topic", "t" * 129),
        ("topic", "тема"),
        ("topic", None),
    ],
)
def test_a_bad_value_names_its_field(field: str, value: object) -> None:
    assert list(faults(**{field: value})) == [field]


def test_all_faults_are_told_at_once() -> None:
    found = faults(topic=1, id="a b", dealy=600, prioritty="high", timeout=0, key="ok")
    assert set(found) == {"topic", "id", "dealy", "prioritty", "timeout"}
    assert "did you mean `delay`?" in found["dealy"]
    assert "did you mean `priority`?" in found["prioritty"]


def test_a_missing_topic_is_told_beside_other_faults() -> None:
    with pytest.raises(Invalid) as caught:
        read(b'{"delay": -1}')
    told = {(fault.field, fault.message) for fault in caught.value.errors}
    assert ("topic", "is required") in told and len(told) == 2


def test_a_thousand_unknown_fields_are_cut_short() -> None:
    found = faults(**{f"field{number}": 1 for number in range(1000)}, **{"x" * 9000: 1})
    assert len(found) == 20


def test_an_unknown_topic_is_told_only_when_the_fields_are_right() -> None:
    with pytest.raises(TopicUnknown):
        read(b'{"topic":"nobody"}')
    with pytest.raises(Invalid):
        read(b'{"topic":"nobody","delay":-1}')


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"-0.0",
        b"1e999",
        b"18446744073709551616",
        b"9" * 5000,
        b'""',
        b'"\\u0000 \\ud83d\\ude00 \\/ \\u00e9"',
        '"é\u2028😀"'.encode(),
        b'{"a" :\t1 ,"a":2,\r\n "" : [ ] }',
        b"[" * 500 + b"]" * 500,
        b"0.1000000000000000055511151231257827",
    ],
)
def test_a_body_is_kept_byte_for_byte(body: bytes) -> None:
    assert read(b'{"topic":"t", "body" :  %s  ,"id":"1"}' % body).body == body


def test_a_body_over_the_limit_is_refused_by_its_own_size() -> None:
    at_limit = b'"%s"' % (b"x" * 99_998)
    assert read(b'{"topic":"t","body":%s}' % at_limit).body == at_limit
    with pytest.raises(Refused) as caught:
        read(b'{"topic":"t","body":%s}' % at_limit.replace(b"x", b"xx", 1))
    assert caught.value.problem.status == 413


def test_the_last_of_two_same_fields_counts() -> None:
    assert read(b'{"topic":"x","topic":"t","body":1,"body":2}').body == b"2"


def test_another_due_time_is_read_from_one_field() -> None:
    assert read_due(b'{"delay":2}', NOW) == NOW + 2000
    assert read_due(b'{"due":"2026-11-21T06:00:00+08:00"}', NOW) == 1_795_212_000_000
    assert read_due(b'{"due":17}', NOW) == 17


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"delay":1,"due":2}', b'{"delay":-1}', b'{"dly":1}', b'{"body":{}}']
)
def test_a_bad_change_of_the_due_time_is_invalid(raw: bytes) -> None:
    with pytest.raises(Invalid):
        read_due(raw, NOW)
