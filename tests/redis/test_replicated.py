"""DQ_DURABILITY=replicated: a push is answered when a replica has it on its disk, not before."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dq.core.errors import NodeAway
from dq.queue import store
from dq.queue.nodes import Nodes
from dq.queue.records import Code
from tests.redis.writing import JOBS, META, a_push, nodes_of, writing
from tests.support import wait_until
from tests.valkey import Valkey


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Pair:
    """A master and its replica, both writing to disk."""

    def __init__(self) -> None:
        port = _free_port()
        self.master = Valkey(None, "--port", str(port), "--repl-diskless-sync-delay", "0").start()
        self.replica = Valkey(
            None, "--replicaof", "127.0.0.1", str(port), "--appendfsync", "always"
        ).start()
        with self.master.client() as client:
            client.set("first", 1)
            wait_until(lambda: client.waitaof(0, 1, 1000)[1] == 1, 20, "replica")

    def stop(self) -> None:
        self.replica.stop()
        self.master.stop()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(store, "CONFIRM_MS", (1, 5, 20, 50, 100))
    pair = Pair()
    yield pair
    pair.stop()


def jobs_at(server: Valkey, nodes: Nodes) -> int:
    with server.client() as client:
        return sum(client.hlen(bucket.keys[JOBS]) for bucket in nodes.buckets)


async def test_what_is_answered_survives_the_master_and_this_disk(
    pair: Pair, tmp_path: Path
) -> None:
    async with (
        nodes_of(tmp_path, pair.master.url) as nodes,
        writing(nodes, tmp_path / "log", asks_replica=True, answer_within_ms=5_000) as writer,
    ):
        pushes = (writer.submit(nodes.buckets[n % 2], a_push(writer, n)) for n in range(300))
        assert set(await asyncio.gather(*pushes)) == {Code.CREATED}
        pair.master.kill()
        assert jobs_at(pair.replica, nodes) == 300


async def test_without_its_replica_nothing_is_promised_and_nothing_lost(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        nodes_of(tmp_path, pair.master.url) as nodes,
        writing(nodes, tmp_path / "log", asks_replica=True, answer_within_ms=1_000) as writer,
    ):
        bucket = nodes.buckets[0]
        pair.replica.signal(signal.SIGSTOP)
        with pytest.raises(NodeAway):
            await writer.submit(bucket, a_push(writer, "x"))
        assert "no replica has it on its disk" in caplog.text
        pair.replica.signal(signal.SIGCONT)
        assert await writer.submit(bucket, a_push(writer, "y")) is Code.CREATED
        assert jobs_at(pair.replica, nodes) == 2, "the first went on by itself"
        with pair.master.client() as client:
            assert client.hget(bucket.keys[META], b"h" + writer.name) == b"2", "each once"


async def test_a_node_that_knows_no_waitaof_is_away_not_a_reason_to_drop_a_record(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pair.master.client() as client:
        client.acl_setuser("default", enabled=True, commands=["-waitaof"])
    async with (
        nodes_of(tmp_path, pair.master.url) as nodes,
        writing(nodes, tmp_path / "log", asks_replica=True, answer_within_ms=1_000) as writer,
    ):
        with pytest.raises(NodeAway):
            await writer.submit(nodes.buckets[0], a_push(writer, "x"))
        assert "can't say what its replicas have" in caplog.text
        with pair.master.client() as client:
            client.acl_setuser("default", enabled=True, commands=["+waitaof"])
        assert await writer.submit(nodes.buckets[0], a_push(writer, "y")) is Code.CREATED
