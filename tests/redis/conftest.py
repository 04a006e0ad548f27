"""A bucket on a real Valkey, and a writer with a log, for the tests of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from dq.journal.heir import Heir
from dq.log.log import Log
from dq.queue.nodes import Bucket, Nodes
from dq.queue.store import Store
from dq.queue.writer import Writer
from tests.redis.desk import Desk
from tests.redis.dying import Process
from tests.redis.writing import USUAL
from tests.unit.test_log_disk import small_disk
from tests.valkey import Valkey

__all__ = ["small_disk"]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Workers use uvloop; what takes over a loop's transports is tested on both."""
    usual: dict[str, Callable[[], asyncio.AbstractEventLoop]]
    usual = {"asyncio": asyncio.new_event_loop}
    is_about_transports = item.path.name == "test_line.py"
    return usual | {"uvloop": uvloop.new_event_loop} if is_about_transports else usual


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    server = Valkey().start()
    yield server
    server.stop()


@pytest.fixture
async def nodes(valkey: Valkey, tmp_path: Path) -> AsyncIterator[Nodes]:
    valkey.client().flushall()
    nodes = Nodes([valkey.url], 2)
    await nodes.open(tmp_path / "nodes.json")
    for bucket in nodes.buckets:
        bucket.epoch, _ = await Store().found(bucket, b"epoch-1")
    yield nodes
    await nodes.close()


@pytest.fixture
def bucket(nodes: Nodes) -> Bucket:
    return nodes.buckets[0]


@pytest.fixture
def desk(bucket: Bucket, valkey: Valkey) -> Iterator[Desk]:
    client = valkey.client()
    desk = Desk(bucket, client)
    yield desk
    desk.check()
    client.close()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def writer(nodes: Nodes, store: Store, tmp_path: Path) -> AsyncIterator[Writer]:
    log = Log(tmp_path / "log", "test", [bucket.name for bucket in nodes.buckets])
    writer = Writer(log, store, nodes.buckets, **USUAL)
    writer.start()
    yield writer
    await writer.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def fork(nodes: Nodes, root: Path) -> Iterator[Callable[..., Process]]:
    """Makes processes; all are dead at the end."""
    made: list[Process] = []

    def make(name: str = "dq-server-0") -> Process:
        made.append(Process(root, nodes, name))
        return made[-1]

    yield make
    for process in made:
        with suppress(ProcessLookupError):  # the test killed it
            process.kill()


@pytest.fixture
async def heir(nodes: Nodes, writer: Writer, root: Path) -> Heir:
    """In a process of its own log, as dq-journal is."""
    return Heir(nodes, Store(), writer, root)
