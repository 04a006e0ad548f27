"""An endpoint that hangs takes many slots for long: the other topics must not feel it, and its own
jobs stay leased."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from dq.queue.keys import BUCKET_KEYS, bucket_keys
from dq.workers.valkey import short_path
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.support import wait_until

LEASES = BUCKET_KEYS.index("leases")
HELD_UP = 5_000
JOBS, EACH_MS = 200, 20
MUCH_MS = 2_500
"""The promise is 50 ms, met where nothing else runs; whoever is held up is so for 3 s and more."""


@pytest.mark.time_limit(90)
def test_jobs_for_an_endpoint_that_hangs_hold_up_no_other_topic(tmp_path: Path) -> None:
    with Receiver() as hanging, Receiver() as receiver, Program(tmp_path) as dq:
        hanging.delay_s = 3600
        dq.topic("hung", callback=hanging.url, timeout=3, max_retries=0)
        dq.topic("well", callback=receiver.url)
        due_ms = int(time.time() * 1000) + 3_000
        jobs = [{"topic": "hung", "id": str(n), "due": due_ms, "body": 1} for n in range(HELD_UP)]
        for first in range(0, HELD_UP, 500):
            batch = {"jobs": jobs[first : first + 500]}
            assert dq.call("POST", "/v1/jobs/batch", batch).status == 200
        for number in range(JOBS):
            assert dq.push("well", str(number), due=due_ms + number * EACH_MS).status == 201
        wait_until(lambda: len(receiver.calls) == JOBS, 40, "all of the other topic")
        assert len(hanging.calls) > 500
        late_ms = sorted(call.at_ms - int(call.headers["dq-due"]) for call in receiver.calls)
        p99_ms = late_ms[JOBS * 99 // 100]
        print(f"lateness p50 {late_ms[JOBS // 2]:.1f}, p99 {p99_ms:.1f}, max {late_ms[-1]:.1f} ms")
        assert late_ms[0] >= 0
        assert p99_ms < MUCH_MS


@pytest.mark.time_limit(60)
def test_a_callback_that_may_take_long_keeps_its_lease(tmp_path: Path) -> None:
    with Receiver() as hanging, Program(tmp_path) as dq:
        hanging.delay_s = 3600
        dq.topic("t", callback=hanging.url, timeout=300)
        assert dq.push("t", "1").status == 201
        wait_until(lambda: len(hanging.calls) == 1, 10, "the call")
        wait_until(lambda: lease_left_s(dq) > 290, 10, "the lease to outlast the timeout")
        assert lease_left_s(dq) < 311
        dq.kill_all()  # a graceful stop would wait for the callback


def lease_left_s(dq: Program) -> float:
    """Of the only job."""
    path = short_path(dq.folder / "data" / "valkey") / "valkey.sock"
    with redis.Redis(unix_socket_path=str(path)) as node:
        keys = [bucket_keys(number)[LEASES] for number in range(4)]
        (until_ms,) = (at for key in keys for _, at in node.zrange(key, 0, -1, withscores=True))
    return until_ms / 1000 - time.time()
