"""Looking at nodes: what is counted, and that a dead node holds nothing up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dq.core import clock
from dq.queue.inspect import Inspector, TopicLook
from dq.queue.nodes import Nodes
from dq.queue.store import Store
from tests.valkey import Valkey
from tests.web.conftest import Served


async def test_jobs_are_counted_by_state_bucket_and_topic(served: Served) -> None:
    now_ms = clock.now_ms()
    for number in range(3):
        await served.push("alpha", f"r{number}", priority=number)
        await served.push("beta", f"d{number}", delay_ms=60_000 * (number + 1) + 5_000)
    await served.push("alph", "other")
    inspector = served.admin.inspector
    (node,) = await inspector.look()
    assert node.away == "" and node.server.version and node.server.role == "master"
    assert node.server.memory > 0 and node.ping_ms > 0
    totals = [node.total(state) for state in ("jobs", "delayed", "ready", "running")]
    assert totals == [7, 3, 4, 0]
    assert [bucket.state for bucket in node.buckets] == ["ready", "ready"]
    assert node.late_ms(now_ms) == 0 < node.late_ms(now_ms + 120_000)
    found = await inspector.topics(["alpha", "alph", "beta", "none"])
    assert found == {
        "alpha": TopicLook(3, 0),
        "alph": TopicLook(1, 0),
        "beta": TopicLook(),
        "none": TopicLook(),
    }
    assert await inspector.due_ahead(now_ms, 60_000, 5) == [0, 1, 1, 1, 0]


async def test_running_jobs_are_counted(served: Served) -> None:
    await served.push("alpha", "1")
    for bucket in served.outfit.nodes.buckets:
        await Store().lease(bucket, b"consumer", 1, 1)
    (node,) = await served.admin.inspector.look()
    assert (node.total("running"), node.total("ready")) == (1, 0)
    assert await served.admin.inspector.topics(["alpha"]) == {"alpha": TopicLook(0, 1)}


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Valkey]:
    folder = tmp_path / "v"
    folder.mkdir()
    server = Valkey(folder).start()
    yield server
    server.stop()


async def test_a_node_that_hangs_or_is_gone_is_away_within_the_bound(
    valkey: Valkey, second: Valkey, tmp_path: Path
) -> None:
    nodes = Nodes([valkey.url, second.url], 1)
    await nodes.open(tmp_path / "nodes.json")
    inspector = Inspector(nodes, timeout_s=2.0)
    try:
        assert [node.away for node in await inspector.look()] == ["", ""]
        second.signal(signal.SIGSTOP)
        began_ms = clock.mono_ms()
        (here, hung), topics, due = await asyncio.gather(
            inspector.look(), inspector.topics(["t"]), inspector.due_ahead(0, 1000, 3)
        )
        assert clock.mono_ms() - began_ms < 20_000
        assert here.away == "" and "no answer in time" in hung.away
        assert (topics, due) == ({"t": TopicLook()}, [0, 0, 0])
        second.signal(signal.SIGCONT)
        second.kill()
        here, gone = await inspector.look()
        assert here.away == "" and gone.away
        second.start()
        assert [node.away for node in await inspector.look()] == ["", ""]
    finally:
        await nodes.close()
