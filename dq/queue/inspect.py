"""The admin's view of the nodes: counts and figures, read and never written.

Nothing that takes, moves or delivers jobs imports this. Each look at a node is bounded by one
timeout, nodes are asked side by side, and one that doesn't answer in time is told as away: a dead
node may cost a page that time once, never more. All commands are cheap: none walks over jobs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dq.core import clock
from dq.core.errors import NodeAway, NodeFull
from dq.queue.inspect_jobs import HoldUp, read_held, read_hold_up, read_states
from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import Bucket, Client, Node, NodeRefused, Nodes, ask
from dq.queue.records import PRIORITIES, StoredJob

TIMEOUT_S = 1.0
_KEY = {name: place for place, name in enumerate(BUCKET_KEYS)}


class BucketLook(msgspec.Struct, frozen=True):
    """A bucket's counts. `state`: ready, or what dq is doing with it ("" before its first use).
    `first_due_ms`: the earliest due time of a delayed job."""

    number: int
    state: str
    jobs: int
    delayed: int
    ready: int
    running: int
    first_due_ms: int | None


class Server(msgspec.Struct, frozen=True):
    """What a Redis says of itself. `memory_most` 0: no limit. `lag_s`: of its slowest replica,
    None without one."""

    product: str = ""
    version: str = ""
    role: str = ""
    memory: int = 0
    memory_most: int = 0
    uptime_s: int = 0
    replicas: int = 0
    lag_s: int | None = None


class NodeLook(msgspec.Struct, frozen=True):
    """One node. `away` says why it could not be asked, "" when it answered in `ping_ms`."""

    name: str
    away: str = ""
    ping_ms: float = 0.0
    server: Server = Server()
    buckets: list[BucketLook] = []

    def total(self, state: str) -> int:
        """Jobs of all its buckets that are `delayed`, `ready`, `running`; `jobs`: all."""
        return sum(getattr(bucket, state) for bucket in self.buckets)

    def late_ms(self, now_ms: int) -> int:
        """For how long the job that waits longest past its due time has been waiting to be made
        ready; 0 when none is."""
        dues = [one.first_due_ms for one in self.buckets if one.first_due_ms is not None]
        return max(0, now_ms - min(dues)) if dues else 0


class TopicLook(msgspec.Struct):
    """Jobs of a topic on the nodes that answered."""

    ready: int = 0
    running: int = 0


class Inspector:
    """Looks at the nodes of this process. `timeout_s` bounds each look at each node."""

    def __init__(self, nodes: Nodes, timeout_s: float = TIMEOUT_S) -> None:
        self._nodes = nodes
        self._timeout_s = timeout_s

    async def look(self) -> list[NodeLook]:
        """Every node with its buckets, in the order of the settings. Never raises."""
        return list(await asyncio.gather(*map(self._look_at, self._nodes.all)))

    async def topics(self, names: Sequence[str]) -> dict[str, TopicLook]:
        """Ready and running jobs of these topics. Nodes that are away are left out."""
        found = {name: TopicLook() for name in names}
        counts = await asyncio.gather(*(self._try(_count_topics, n, names) for n in self._all()))
        for count in counts:
            for name, (ready, running) in (count or {}).items():
                found[name].ready += ready
                found[name].running += running
        return found

    async def due_ahead(self, from_ms: int, step_ms: int, steps: int) -> list[int]:
        """How many delayed jobs are due in each of `steps` spans of `step_ms` from `from_ms` on.
        Nodes that are away are left out."""
        edges = [from_ms + step_ms * step for step in range(steps + 1)]
        counts = await asyncio.gather(*(self._try(_count_due, n, edges) for n in self._all()))
        columns = zip(*(count for count in counts if count), strict=True)
        return [sum(column) for column in columns] or [0] * steps

    async def hold_up(self, topic: str, id_: str) -> HoldUp | None:
        """What the node that has this job says of it; None when none that answered has it."""
        looks = [self._try(read_hold_up, node, (topic, id_)) for node in self._all()]
        found = [one for one in await asyncio.gather(*looks) if one is not None]
        return next((one for one in found if one.state), None)

    async def states(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The states of unfinished jobs by (topic, id). Nodes that are away are left out."""
        found: dict[tuple[str, str], str] = {}
        for states in await asyncio.gather(
            *(self._try(read_states, n, names) for n in self._all())
        ):
            found.update(states or {})
        return found

    async def held(self, state: str, topic: str | None, most: int) -> list[StoredJob]:
        """Up to `most` of the jobs that are `ready` or `running`. Nodes that are away are left
        out."""
        wanted = (state, topic, most)
        some = await asyncio.gather(*(self._try(read_held, n, wanted) for n in self._all()))
        return [job for jobs in some for job in jobs or []][:most]

    def _all(self) -> list[Node]:
        return [node for node in self._nodes.all if node.buckets]

    async def _look_at(self, node: Node) -> NodeLook:
        try:
            return await ask(node, _look_at(node), self._timeout_s)
        except NodeAway as error:
            why = error.detail.removeprefix(f"{node.name}: ")
            return NodeLook(node.name, away=why or "no answer")
        except (NodeFull, NodeRefused) as error:
            return NodeLook(node.name, away=str(error))

    async def _try(self, read: Any, node: Node, what: Any) -> Any:
        try:
            return await ask(node, read(node, what), self._timeout_s)
        except (NodeAway, NodeFull, NodeRefused):
            return None  # `look` tells that it is away, and why


async def _look_at(node: Node) -> NodeLook:
    began_ms = clock.mono_ms()
    info = info_of(await node.client.info())
    ping_ms = clock.mono_ms() - began_ms
    buckets = await _look_at_buckets(node)
    return NodeLook(node.name, ping_ms=ping_ms, server=server_of(info), buckets=buckets)


async def _look_at_buckets(node: Node) -> list[BucketLook]:
    pipe = _pipeline(node.client)
    for bucket in node.buckets:
        pipe.hget(_key(bucket, "meta"), "state")
        pipe.hlen(_key(bucket, "jobs"))
        pipe.zcard(_key(bucket, "due"))
        pipe.zcard(_key(bucket, "ready"))
        pipe.hlen(_key(bucket, "holders"))
        pipe.zrange(_key(bucket, "due"), 0, 0, withscores=True)
    answers = await pipe.execute() if node.buckets else []
    return [
        _bucket_look(bucket, answers[place * 6 : place * 6 + 6])
        for place, bucket in enumerate(node.buckets)
    ]


def _bucket_look(bucket: Bucket, answers: Sequence[Any]) -> BucketLook:
    state, jobs, delayed, ready, running, first = answers
    due_ms = int(first[0][1]) if first else None
    return BucketLook(bucket.number, (state or b"").decode(), jobs, delayed, ready, running, due_ms)


async def _count_topics(node: Node, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    pipe = _pipeline(node.client)
    for bucket in node.buckets:
        for name in names:
            for priority in range(len(PRIORITIES)):
                start = f"{priority}{name}".encode()
                ready = _key(bucket, "ready")
                pipe.zlexcount(ready, b"[" + start + b"\0", b"(" + start + b"\1")
            pipe.hget(_key(bucket, "gauges"), f"n{name}")
    answers = iter(await pipe.execute() if names else [])
    found = dict.fromkeys(names, (0, 0))
    for _ in node.buckets:
        for name in names:
            ready = sum(next(answers) for _ in PRIORITIES)
            running = int(next(answers) or 0)
            found[name] = (found[name][0] + ready, found[name][1] + running)
    return found


async def _count_due(node: Node, edges: Sequence[int]) -> list[int]:
    pipe = _pipeline(node.client)
    for bucket in node.buckets:
        for begin, end in itertools.pairwise(edges):
            pipe.zcount(_key(bucket, "due"), begin, f"({end}")
    answers = await pipe.execute()
    steps = len(edges) - 1
    return [sum(answers[step::steps]) for step in range(steps)]


def _pipeline(client: Client) -> Any:
    return client.pipeline(transaction=False)


def _key(bucket: Bucket, name: str) -> str:
    return bucket.keys[_KEY[name]]


def info_of(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cluster may answer for each of its servers: the first stands for all."""
    first = next(iter(info.values()), None)
    return first if isinstance(first, Mapping) and "redis_version" in first else info


def server_of(info: Mapping[str, Any]) -> Server:
    is_valkey = info.get("server_name") == "valkey"
    links = [info[name] for name in info if name.startswith("slave") and name[5:].isdigit()]
    lags = [int(link.get("lag", 0)) for link in links if isinstance(link, Mapping)]
    return Server(
        product="Valkey" if is_valkey else "Redis",
        version=str(info.get("valkey_version" if is_valkey else "redis_version", "")),
        role=str(info.get("role", "")),
        memory=int(info.get("used_memory", 0)),
        memory_most=int(info.get("maxmemory", 0)),
        uptime_s=int(info.get("uptime_in_seconds", 0)),
        replicas=int(info.get("connected_slaves", 0)),
        lag_s=max(lags, default=None),
    )
