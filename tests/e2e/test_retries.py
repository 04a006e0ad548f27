"""Failures: the gaps between attempts, the limit, the mail, and what the logs say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.delivery.smtp_sink import SmtpSink
from tests.e2e.background import in_background
from tests.e2e.program import Program
from tests.e2e.receiver import Call, Receiver
from tests.support import wait_until

UNIT_MS = 400


def gaps_of(calls: list[Call]) -> list[float]:
    return [b.at_ms - a.at_ms for a, b in pairwise(calls)]


@pytest.mark.time_limit(60)
def test_a_failing_job_is_retried_by_2n_plus_1_and_mailed_about_when_it_dies(
    tmp_path: Path,
) -> None:
    with (
        in_background(SmtpSink()) as smtp,
        Receiver(lambda call: (500, b'{"oh":"no"}')) as receiver,
        Program(tmp_path, DQ_RETRY_UNIT="0.4", DQ_SMTP_URL=smtp.url()) as dq,
    ):
        emails = ["ops@example.com"]
        dq.topic("pay", callback=receiver.url, max_retries=3, email=emails)
        assert dq.push("pay", "42", {"n": 1}).status == 201
        wait_until(lambda: len(receiver.calls) == 4, 15)
        assert [call.attempt for call in receiver.calls] == [1, 2, 3, 4]
        for gap, units in zip(gaps_of(receiver.calls), (1, 3, 5), strict=True):
            assert 0 <= gap - units * UNIT_MS <= 100
        wait_until(lambda: dq.state("pay", "42") == "dead")
        wait_until(lambda: smtp.mails, 10, "the mail")
        assert [line["result"] for line in dq.lines("notify")] == ["retry"] * 3 + ["dead"]
        job = dq.call("GET", "/v1/jobs/pay/42").json
        states = [entry["state"] for entry in job["history"]]
        assert states == ["delayed", "delayed", "delayed", "delayed", "dead"]
        assert job["history"][-1]["detail"] == "HTTP 500"
        text = smtp.mails[0].text
        assert smtp.mails[0].recipients == emails
        for word in ("pay", "42", "4", "HTTP 500", '{"oh":"no"}'):
            assert word in text
        assert dq.stop() == 0
        assert len(smtp.mails) == 1


@pytest.mark.time_limit(60)
def test_a_rule_that_stays_true_reaches_the_limit_too(tmp_path: Path) -> None:
    with (
        Receiver(lambda call: (200, b'{"code":1}')) as receiver,
        Program(tmp_path, DQ_RETRY_UNIT="0.05") as dq,
    ):
        dq.topic("t", callback=receiver.url, max_retries=2, retry_if="{res.code}!=200")
        assert dq.push("t", "1").status == 201
        wait_until(lambda: dq.state("t", "1") == "dead", 10)
        assert len(receiver.calls) == 3
        assert dq.lines("notify")[-1]["detail"] == "retry_if is true"
        redriven = dq.call("POST", "/v1/jobs/t/1/redrive")
        assert redriven.status == 200, redriven.raw
        wait_until(lambda: len(receiver.calls) == 6, 10)
        assert [call.attempt for call in receiver.calls] == [1, 2, 3] * 2


@pytest.mark.time_limit(60)
def test_a_cancel_while_the_callback_runs_stops_the_retries(tmp_path: Path) -> None:
    with (
        Receiver(lambda call: (500, b"no")) as receiver,
        Program(tmp_path, DQ_RETRY_UNIT="0.05") as dq,
    ):
        receiver.delay_s = 0.5
        dq.topic("t", callback=receiver.url)
        assert dq.push("t", "1").status == 201
        wait_until(lambda: len(receiver.calls) == 1)
        assert dq.state("t", "1") == "running"
        assert dq.call("DELETE", "/v1/jobs/t/1").json == {"result": "running"}
        wait_until(lambda: dq.state("t", "1") == "cancelled", 5)
        assert len(receiver.calls) == 1


@pytest.mark.time_limit(60)
def test_a_replaced_job_is_not_overwritten_by_its_old_attempt(tmp_path: Path) -> None:
    answers = {1: (500, b"no")}
    with (
        Receiver(lambda call: answers.get(len(receiver.calls), (200, b"ok"))) as receiver,
        Program(tmp_path, DQ_RETRY_UNIT="0.05") as dq,
    ):
        receiver.delay_s = 0.4
        dq.topic("t", callback=receiver.url)
        assert dq.push("t", "1", "old").status == 201
        wait_until(lambda: len(receiver.calls) == 1)
        assert dq.push("t", "1", "new", delay=0).json["result"] == "replaced"
        wait_until(lambda: dq.state("t", "1") == "done", 5)
        assert [call.body for call in receiver.calls] == [b'"old"', b'"new"']
        assert [call.attempt for call in receiver.calls] == [1, 1]
