"""The mail about dead jobs: says what is needed, however many died and whatever they hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dq.core.alarms import (
    Death,
    compose_back_mail,
    compose_dead_mail,
    compose_down_mail,
    compose_mended_mail,
    group_by_addresses,
)

AT_MS = 1_700_000_000_123


def death(topic: str = "order_close", id: str = "42", **changes: str) -> Death:
    facts = {"detail": "HTTP 500", "reply": '{"code":500}', "url": "http://host/path", **changes}
    return Death(topic=topic, id=id, attempts=11, at_ms=AT_MS, **facts)


def test_one_death_is_told_with_everything_to_look_at() -> None:
    subject, text = compose_dead_mail([death()], 1)
    assert subject == "dq: job 42 of topic order_close is dead"
    for fact in ("order_close", "42", "11", "2023-11-14T22:13:20.123Z", "HTTP 500", '{"code":500}'):
        assert fact in text
    assert "http://host/path" in text
    assert "POST /v1/jobs/order_close/42/redrive" in text


def test_many_deaths_are_a_count_and_a_sample() -> None:
    subject, text = compose_dead_mail([death(id=f"job-{n}") for n in range(30)], 5000)
    assert subject == "dq: 5000 jobs are dead (topic order_close)"
    assert "The first 20:" in text
    assert "job-19" in text and "job-20" not in text


def test_many_topics_are_named_up_to_three() -> None:
    subject, _ = compose_dead_mail([death(topic=f"t{n}") for n in range(5)], 5)
    assert subject == "dq: 5 jobs are dead (topics t0, t1, t2 and 2 more)"


def test_deaths_known_by_number_only_still_make_a_mail() -> None:
    subject, text = compose_dead_mail([], 3)
    assert subject == "dq: 3 jobs are dead" and "bin/dq dead" in text


def test_the_admin_is_linked_when_its_address_is_known() -> None:
    _, text = compose_dead_mail([death()], 1, "http://127.0.0.1:8088/")
    assert "http://127.0.0.1:8088/dead" in text


def test_an_id_is_encoded_where_it_is_part_of_a_path() -> None:
    _, text = compose_dead_mail([death(id="a/b?é")], 1)
    assert "/v1/jobs/order_close/a%2Fb%3F%C3%A9/redrive" in text


def test_a_long_reply_is_cut() -> None:
    _, text = compose_dead_mail([death(reply="x" * 10_000)], 1)
    assert "x" * 500 + "…" in text and "x" * 501 not in text


def test_an_outage_is_told_with_its_begin_its_reason_and_its_length() -> None:
    subject, text = compose_down_mail("redis://r1:6379", "host-a", AT_MS, "connect\r\nrefused")
    assert subject == "dq: Redis is down: redis://r1:6379"
    assert "2023-11-14T22:13:20.123Z" in text and "host-a" in text
    assert "connect  refused" in text
    subject, text = compose_back_mail("redis://r1:6379", "host-a", 61.4, 3000)
    assert subject == "dq: Redis is back after 61 s, 3000 jobs restored: redis://r1:6379"
    assert "It had lost 3000 jobs" in text
    subject, text = compose_back_mail("r", "h", 0.2, 1)
    assert subject == "dq: Redis is back at once, 1 job restored: r"
    assert "lost nothing" in compose_back_mail("r", "h", 9, 0)[1]


def test_what_an_audit_mended_is_counted() -> None:
    subject, text = compose_mended_mail("h", 5, 2)
    assert subject == "dq: Redis had lost 7 jobs, they are put back"
    assert "5 unfinished jobs were missing and 2 stood nowhere" in text


_anything = st.text(st.characters(), max_size=40)


@given(_anything, _anything, _anything, _anything)
def test_nothing_breaks_a_line_or_turns_the_text(topic: str, id: str, reply: str, url: str) -> None:
    hostile = death(
        topic=f"{topic}\ud800", id=f"{id}\r\nBcc: x\u202e\ud800", reply=f"\x00{reply}", url=url
    )
    subject, text = compose_dead_mail([hostile], 1)
    plain_lines = compose_dead_mail([death(topic="t", id="i", reply="r", url="u")], 1)[1]
    assert not {"\r", "\n", "\u202e", "\u2028", "\x00"} & set(subject)
    assert len(text.splitlines()) <= len(plain_lines.splitlines())
    (subject + text).encode()


def test_the_same_people_get_one_mail() -> None:
    first, second, third = death(id="1"), death(id="2"), death(id="3")
    groups = group_by_addresses(
        [(first, ["b@x", "a@x"]), (second, ["a@x", "b@x", "a@x"]), (third, ["c@x"]), (third, [])]
    )
    assert groups == {("a@x", "b@x"): [first, second], ("c@x",): [third]}
