"""The nodes: from a URL to a client, and the buckets that a node has.

A node is one Redis deployment. It is known by its URL without credentials ("embedded" for the
Valkey that dq starts itself). How many buckets it has is written into the node when it is first
used and never changes, so a changed setting moves no job. Commands are never repeated by the
client: scripts are repeated by those who know that it is safe (queue/writer.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import redis.asyncio as aioredis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    ConnectionError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from dq.core.errors import DqError, NodeAway, NodeFull
from dq.core.files import write_atomically
from dq.queue.keys import NODE_KEY, bucket_keys
from dq.queue.line import Line, pack

_log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""How long any one command may take, blocking ones apart."""

MOST_COMMANDS = 200
"""On their way to a node at a time; more wait for their turn. Each takes a connection."""

MOST_CONNECTIONS = 1024
"""Never reached: blocking calls are one a node, or one a bucket of a cluster (log.MAX_BUCKETS)."""

_AWAY = (
    ConnectionError,
    TimeoutError,
    ReadOnlyError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,  # sent from master to master: a slot is being moved
    RedisClusterException,  # no RedisError: none of the masters can be reached
    MasterDownError,
    TryAgainError,
    OSError,
)
_AWAY_WORDS = (
    "NOREPLICAS",
    "MISCONF",
    "BUSY ",
    "LOADING",
    "MASTERDOWN",
    "UNBLOCKED",
    "CLUSTERDOWN",
)

T = TypeVar("T")


class NodeRefused(DqError):
    """Redis refused a command: a mistake of ours, or a key that is not what it should be."""


Client = Any
"""redis.asyncio's Redis or RedisCluster; their common interface has no type of its own."""


@dataclass(eq=False)
class Bucket:
    """One bucket of a node. `index` is its place in this process's logs."""

    node: Node
    number: int
    index: int
    keys: tuple[str, ...] = field(init=False)
    epoch: bytes = b""

    def __post_init__(self) -> None:
        self.keys = bucket_keys(self.number)

    @property
    def epoch_number(self) -> int:
        """The epoch as the shared tables of positions keep it: 64 bits of its hash."""
        return int.from_bytes(blake2b(self.epoch, digest_size=8).digest(), "big")

    @property
    def name(self) -> str:
        """node/number, as the logs and the journal record it."""
        return f"{self.node.name}/{self.number}"


@dataclass(eq=False)
class Node:
    """One Redis deployment and this process's client of it. `is_draining`: it takes no new jobs.
    `line`: for scripts; None where it is a cluster."""

    url: str
    name: str
    client: Client
    buckets: list[Bucket] = field(default_factory=list)
    is_away: bool = False
    is_draining: bool = False
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_COMMANDS))
    line: Line | None = field(init=False)

    def __post_init__(self) -> None:
        self.line = None if isinstance(self.client, RedisCluster) else Line(self.client)

    async def close(self) -> None:
        """Close every connection."""
        if self.line is not None:
            await self.line.close()
        await self.client.aclose()


def node_name(url: str, embedded_url: str = "") -> str:
    """The URL without user, password and options; 'embedded' for dq's own Valkey."""
    if url == embedded_url:
        return "embedded"
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def make_client(url: str) -> Client:
    """A client for any of the URLs of DQ_REDIS_URLS. Nothing is connected yet.

    Raises ValueError, with words, for a URL that is none of them.
    """
    options: dict[str, Any] = {
        "socket_timeout": None,  # see `ask`
        "socket_connect_timeout": TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MOST_CONNECTIONS,
    }
    parts = urlsplit(url)
    if parts.scheme == "redis+sentinel":
        return _sentinel_client(url, options)
    if parts.scheme == "redis+cluster":
        first = _credentials(url)
        return RedisCluster(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 6379,
            socket_timeout=None,
            socket_connect_timeout=TIMEOUT_S,
            max_connections=MOST_CONNECTIONS,
            **first,
        )
    if parts.scheme in ("redis", "rediss", "unix"):
        return aioredis.Redis.from_url(url, **options)
    raise ValueError(
        f"{parts.scheme}: is no Redis URL; give redis://, rediss://, unix://, "
        "redis+sentinel://host:port,host:port/SERVICE or redis+cluster://host:port"
    )


def _credentials(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    found: dict[str, Any] = {}
    if parts.username:
        found["username"] = unquote(parts.username)
    if parts.password:
        found["password"] = unquote(parts.password)
    return found


def _sentinel_client(url: str, options: dict[str, Any]) -> Client:
    parts = urlsplit(url)
    service = parts.path.strip("/")
    if not service:
        raise ValueError("redis+sentinel:// needs the service's name as its path")
    places = []
    for place in parts.netloc.rpartition("@")[2].split(","):
        host, _, port = place.rpartition(":")
        places.append((host or place, int(port) if host else 26379))
    extra = dict(parse_qsl(parts.query))
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        places,
        sentinel_kwargs={
            "socket_timeout": TIMEOUT_S,
            "socket_connect_timeout": TIMEOUT_S,
            "password": extra.get("sentinel_password"),
        },
    )
    return sentinel.master_for(service, **_credentials(url), **options)


async def ask(
    node: Node, command: Awaitable[T], timeout_s: float = TIMEOUT_S, *, blocks: bool = False
) -> T:
    """A command's answer within `timeout_s`. `blocks`: it waits in the node, and takes no turn.

    Raises NodeAway, NodeFull, and NodeRefused where that is a mistake of ours. The bound is ours
    because redis-py's own is `asyncio.wait_for`, which may swallow a cancellation (Python 3.11).
    """
    try:
        async with asyncio.timeout(timeout_s):
            if blocks:
                return await command
            async with node.turns:
                return await command
    except NoScriptError:
        raise
    except (RedisError, RedisClusterException) as error:
        raise _translate(node, error) from error
    except OSError as error:
        raise NodeAway(f"{node.name}: {str(error) or 'no answer in time'}") from error
    finally:
        if isinstance(command, Coroutine):
            command.close()  # it may never have had its turn


async def ask_all(
    node: Node,
    commands: Sequence[tuple[Any, ...]],
    timeout_s: float = TIMEOUT_S,
    *,
    blocks: bool = False,
) -> list[Any]:
    """The answers to commands that are sent together, in one round trip; one after the other where
    the node is a cluster. The first error is raised, as by `ask`."""
    if node.line is not None and not blocks:
        return await ask(node, node.line.call_all([pack(*one) for one in commands]), timeout_s)
    run = node.client.execute_command
    if isinstance(node.client, RedisCluster):
        return [await ask(node, run(*one), timeout_s, blocks=blocks) for one in commands]
    pipe = node.client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return await ask(node, pipe.execute(), timeout_s, blocks=blocks)


def _translate(node: Node, error: Exception) -> DqError:
    words = str(error)
    if isinstance(error, OutOfMemoryError) or "OOM" in words:
        return NodeFull()
    if isinstance(error, _AWAY):
        return NodeAway(f"{node.name}: {words or type(error).__name__}")
    if isinstance(error, ResponseError) and any(word in words for word in _AWAY_WORDS):
        return NodeAway(f"{node.name}: {words}")
    return NodeRefused(f"{node.name} refused a command: {words}")


class Nodes:
    """All configured nodes, with their buckets numbered for this process's logs."""

    def __init__(self, urls: Sequence[str], buckets: int, embedded_url: str = "") -> None:
        self.all = [Node(url, node_name(url, embedded_url), make_client(url)) for url in urls]
        self._wanted = buckets
        self.buckets: list[Bucket] = []

    async def open(self, memory: Path) -> None:
        """Learn how many buckets each node has, writing it into a node that is new.

        `memory` is a file that remembers the answer for a start at which a node is away; such a
        node is marked `is_away` and its calls fail until it is back.
        """
        known = _read_counts(memory)
        self.buckets = []
        for node in self.all:
            count = await self._count_of(node, known.get(node.name, self._wanted))
            first = len(self.buckets)
            node.buckets = [Bucket(node, n, first + n) for n in range(count)]
            self.buckets.extend(node.buckets)
        counts = known | {node.name: len(node.buckets) for node in self.all}
        if counts != known:
            write_atomically(memory, msgspec.json.encode(counts))

    async def _count_of(self, node: Node, expected: int) -> int:
        try:
            count = await ask(node, node.client.hget(NODE_KEY, "buckets"))
            if count is None:
                await ask(node, node.client.hsetnx(NODE_KEY, "buckets", expected))
                count = await ask(node, node.client.hget(NODE_KEY, "buckets"))
            node.is_away = False
        except NodeAway as error:
            _log.warning("node %s is away: %s", node.name, error.detail)
            node.is_away = True
            return expected
        return int(count)

    async def close(self) -> None:
        """Close every client."""
        for node in self.all:
            await node.close()


def _read_counts(memory: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        _log.warning("%s cannot be read and is made anew: %s", memory, error)
        return {}
