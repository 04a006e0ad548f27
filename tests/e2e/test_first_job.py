"""What a new user does first, on a program started with no configuration at all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.support import wait_until


@pytest.mark.time_limit(60)
def test_a_job_arrives_on_time_byte_for_byte(tmp_path: Path) -> None:
    raw = b'{"a": 1.50,  "big": 18446744073709551617, "t": "\\u00e9\xc3\xa9"}'
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("order_close", callback=receiver.url + "/close")
        for number in range(5):  # the first one pays for what is warmed up
            due = int(time.time() * 1000) + 1500
            text = b'{"topic":"order_close","id":"%d","due":%d,"body":%s}' % (number, due, raw)
            pushed = dq.call("POST", "/v1/jobs", raw=text)
            assert pushed.status == 201, pushed.raw
            assert pushed.json == {
                "topic": "order_close",
                "id": str(number),
                "due": due,
                "state": "delayed",
                "result": "created",
            }
            assert dq.state("order_close", str(number)) == "delayed"
            wait_until(lambda number=number: len(receiver.calls) > number, 5)
            call = receiver.calls[number]
            assert 0 <= call.at_ms - due <= 50
            assert call.body == raw
            assert (call.path, call.id, call.attempt) == ("/close", str(number), 1)
            assert call.headers["dq-due"] == str(due)
            assert call.headers["content-type"] == "application/json"
        wait_until(lambda: dq.state("order_close", "0") == "done")
        job = dq.call("GET", "/v1/jobs/order_close/0").json
        assert [entry["state"] for entry in job["history"]] == ["delayed", "done"]
        assert job["history"][1]["status"] == 200
        requests, notifies = dq.lines("request"), dq.lines("notify")
        assert [line["op"] for line in requests] == ["push"] * 5
        assert requests[0]["body"] == {"a": 1.5, "big": 18446744073709551617, "t": "éé"}
        assert [(line["result"], line["attempt"]) for line in notifies][:1] == [("ok", 1)]
        assert dq.stop() == 0


@pytest.mark.time_limit(60)
def test_cancel_move_and_run(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url, delay=3600)
        for id_ in ("gone", "moved", "now", "later"):
            assert dq.push("t", id_, {"x": id_}).status == 201
        assert dq.call("DELETE", "/v1/jobs/t/gone").json == {"result": "cancelled"}
        assert dq.call("DELETE", "/v1/jobs/t/gone").status == 404
        assert dq.state("t", "gone") == "cancelled"
        assert dq.call("PATCH", "/v1/jobs/t/moved", {"delay": 0.2}).status == 200
        assert dq.call("POST", "/v1/jobs/t/now/run").status == 200
        wait_until(lambda: receiver.ids() == {"moved": 1, "now": 1}, 5)
        assert dq.state("t", "later") == "delayed"
        assert [line["op"] for line in dq.lines("request")][-3:] == [
            "cancel",
            "reschedule",
            "reschedule",
        ]


@pytest.mark.time_limit(60)
def test_jobs_wait_while_a_topic_is_held_and_changes_are_followed(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url, paused=True)
        for number in range(20):
            assert dq.push("t", str(number)).status == 201
        dq.topic("t", callback=receiver.url, enabled=False)
        assert dq.push("t", "x").status == 409
        dq.topic("other", callback=receiver.url)
        assert dq.push("other", "first").status == 201
        wait_until(lambda: receiver.ids() == {"first": 1}, 5)
        began = time.monotonic()
        dq.topic("t", callback=receiver.url)
        wait_until(lambda: len(receiver.ids()) == 21, 5)
        assert time.monotonic() - began < 2
        assert set(receiver.ids().values()) == {1}


@pytest.mark.time_limit(60)
def test_concurrency_and_rate_hold_over_all_consumers(tmp_path: Path) -> None:
    in_flight: list[int] = []
    with Receiver() as receiver, Program(tmp_path) as dq:
        receiver.delay_s = 0.05
        dq.topic("narrow", callback=receiver.url, concurrency=3)
        jobs = [{"topic": "narrow", "id": str(n), "body": None} for n in range(60)]
        assert dq.call("POST", "/v1/jobs/batch", {"jobs": jobs}).status == 200
        wait_until(lambda: len(receiver.calls) == 60, 20)
        starts = sorted(call.at_ms for call in receiver.calls)
        for at_ms in starts:
            in_flight.append(sum(1 for start in starts if at_ms - 50 < start <= at_ms))
        assert max(in_flight) <= 3
        receiver.calls.clear()
        receiver.delay_s = 0
        dq.topic("slow", callback=receiver.url, rate=50)
        jobs = [{"topic": "slow", "id": str(n), "body": None} for n in range(60)]
        assert dq.call("POST", "/v1/jobs/batch", {"jobs": jobs}).status == 200
        wait_until(lambda: len(receiver.calls) == 60, 20)
        starts = sorted(call.at_ms for call in receiver.calls)
        assert max(sum(1 for s in starts if a <= s < a + 1000) for a in starts) <= 56
        assert starts[-1] - starts[0] >= 1_050
