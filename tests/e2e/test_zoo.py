"""Endpoints that misbehave: each a failed attempt with its reason, none of them anybody else's
trouble, none of them a consumer's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from dq.workers.procfs import memory_of
from tests.delivery.certificates import make_certificate
from tests.delivery.hostile import HostileServer, free_port
from tests.e2e.background import in_background
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.support import wait_until

REASONS = {
    "/status/500": "HTTP 500",
    "/empty": "empty reply",
    "/hang": "timed out",
    "/drip": "timed out",
    "/drip_headers": "timed out",
    "/redirect": "HTTP 30",
    "/half": "broke off",
    "/garbage": "broken reply",
    "/no_reply": "",
    "/reset": "reset",
    "/endless_headers": "",
    "/continues": "",
}
GOOD = ("/endless", "/endless_chunks", "/ok")


@pytest.mark.time_limit(120)
def test_hostile_endpoints_fail_with_a_reason_and_hurt_nobody_else(tmp_path: Path) -> None:
    with (
        in_background(HostileServer()) as server,
        in_background(HostileServer(make_certificate().for_server())) as untrusted,
        Receiver() as receiver,
        Program(tmp_path) as dq,
    ):
        wanted = {server.url(path): reason for path, reason in REASONS.items()}
        wanted[untrusted.url("/ok")] = "TLS"
        wanted[f"http://127.0.0.1:{free_port()}/"] = "refused"
        wanted["http://[::ffff:169.254.169.254]/"] = "denied"
        bad = {f"bad-{number}": url for number, url in enumerate(wanted)}
        good = {f"good-{number}": server.url(path) for number, path in enumerate(GOOD)}
        for name, url in {**bad, **good}.items():
            dq.topic(name, callback=url, timeout=0.5, max_retries=0)
        dq.topic("well", callback=receiver.url)
        before = consumers_memory(dq)
        for name in (*bad, *good):
            for number in range(3):
                assert dq.push(name, str(number), {"n": number}).status == 201
            assert dq.push("well", name).status == 201
        wait_until(lambda: len(receiver.ids()) == len(bad) + len(good), 20)
        for name, url in bad.items():
            wait_until(lambda name=name: dq.state(name, "2") == "dead", 20, f"{url} to fail")
            detail = dq.call("GET", f"/v1/jobs/{name}/2").json["history"][-1]["detail"]
            assert wanted[url] in detail, (url, detail)
            assert detail
        for name, url in good.items():
            wait_until(lambda name=name: dq.state(name, "2") == "done", 20, f"{url} to be taken")
        notified = {line["url"]: line["detail"] for line in dq.lines("notify")}
        assert all(reason in notified[url] for url, reason in wanted.items())
        assert consumers_memory(dq) - before < 40_000_000
        assert {one["restarts"] for one in dq.status()} == {0}
        lateness = max(call.at_ms - int(call.headers["dq-due"]) for call in receiver.calls)
        assert lateness < 1000


def consumers_memory(dq: Program) -> int:
    pids = [pid for name, pid in dq.pids().items() if name.startswith("dq-consumer")]
    return sum(memory_of(pid) or 0 for pid in pids)
