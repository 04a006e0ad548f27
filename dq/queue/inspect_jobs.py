"""The admin's view of single jobs on the nodes: where they stand, and what holds them up.

Read and never written, each node bounded as dq/queue/inspect.py bounds it. All commands look at a
few keys of one bucket; what lists jobs reads a bounded number of them and of their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec

from dq.queue.keys import BUCKET_KEYS
from dq.queue.nodes import Bucket, Node
from dq.queue.records import PRIORITIES, StoredJob, digest_of, unpack, unpack_job

MOST_BYTES = 4 * 1024 * 1024
"""Of the jobs that one bucket is asked to list."""

_KEY = {name: place for place, name in enumerate(BUCKET_KEYS)}


class HoldUp(msgspec.Struct, frozen=True):
    """What a node knows of a job and its topic. `state`: delayed, ready, running, or "" when it
    has no such job. `limit`, `rate` 0: none. `next_start_ms`: when the rate allows the next one.
    `losses`: how often its consumer died; `ready`, `in_flight`: of the topic."""

    node: str
    state: str = ""
    bucket_state: str = ""
    limit: int = 0
    rate: float = 0.0
    in_flight: int = 0
    next_start_ms: float = 0.0
    lease_until_ms: int | None = None
    losses: int = 0
    ready: int = 0


async def read_hold_up(node: Node, names: tuple[str, str]) -> HoldUp:
    """Of the job `names`: its topic and id."""
    topic, id_ = names
    bucket, digest = _bucket_of(node, topic), digest_of(topic, id_)
    pipe = node.client.pipeline(transaction=False)
    pipe.hget(_key(bucket, "meta"), "state")
    pipe.hexists(_key(bucket, "jobs"), digest)
    pipe.zscore(_key(bucket, "due"), digest)
    pipe.zscore(_key(bucket, "leases"), digest)
    pipe.hget(_key(bucket, "limits"), topic)
    pipe.hmget(_key(bucket, "gauges"), f"n{topic}", f"t{topic}")
    pipe.hget(_key(bucket, "crashes"), digest)
    for priority in range(len(PRIORITIES)):
        pipe.zlexcount(_key(bucket, "ready"), *_span(priority, topic))
    state, is_there, due, lease, limits, gauges, losses, *ready = await pipe.execute()
    _, limit, rate = unpack(limits)[:3] if limits else (0, 0, 0)
    return HoldUp(
        node=node.name,
        state=_state(is_there, due, lease),
        bucket_state=(state or b"").decode(),
        limit=int(limit),
        rate=float(rate),
        in_flight=int(gauges[0] or 0),
        next_start_ms=float(gauges[1] or 0),
        lease_until_ms=None if lease is None else int(lease),
        losses=int(losses or 0),
        ready=sum(ready),
    )


async def read_states(node: Node, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The state of those of these jobs that the node has."""
    pipe = node.client.pipeline(transaction=False)
    for topic, id_ in names:
        bucket, digest = _bucket_of(node, topic), digest_of(topic, id_)
        pipe.hexists(_key(bucket, "jobs"), digest)
        pipe.zscore(_key(bucket, "due"), digest)
        pipe.zscore(_key(bucket, "leases"), digest)
    answers = await pipe.execute() if names else []
    states = (_state(*answers[place * 3 : place * 3 + 3]) for place in range(len(names)))
    return {name: state for name, state in zip(names, states, strict=True) if state}


async def read_held(node: Node, wanted: tuple[str, str | None, int]) -> list[StoredJob]:
    """Up to so many jobs of each bucket in a state, `ready` or `running`, of one topic or all."""
    state, topic, most = wanted
    found: list[StoredJob] = []
    for bucket in node.buckets if topic is None else [_bucket_of(node, topic)]:
        if state == "running":
            digests = await node.client.zrange(_key(bucket, "leases"), 0, most - 1)
        else:
            digests = await _ready_digests(node, bucket, topic, most)
        found += [job for job in await _jobs(node, bucket, digests) if topic in (None, job.topic)]
    return found


async def _ready_digests(node: Node, bucket: Bucket, topic: str | None, most: int) -> list[bytes]:
    pipe = node.client.pipeline(transaction=False)
    for priority in range(len(PRIORITIES)):
        low, high = (
            (f"[{priority}", f"({priority + 1}") if topic is None else _span(priority, topic)
        )
        pipe.zrangebylex(_key(bucket, "ready"), low, high, 0, most)
    members = [member for some in await pipe.execute() for member in some]
    return [member[-8:] for member in members[:most]]


async def _jobs(node: Node, bucket: Bucket, digests: Sequence[bytes]) -> list[StoredJob]:
    """As many as MOST_BYTES hold."""
    pipe = node.client.pipeline(transaction=False)
    for digest in digests:
        pipe.hstrlen(_key(bucket, "jobs"), digest)
    room, some = MOST_BYTES, []
    for digest, size in zip(digests, await pipe.execute() if digests else [], strict=True):
        if size <= room:
            some.append(digest)
            room -= size
    raw = await node.client.hmget(_key(bucket, "jobs"), some) if some else []
    return [unpack_job(one) for one in raw if one]


def _state(is_there: Any, due: Any, lease: Any) -> str:
    if not is_there:
        return ""
    return "running" if lease is not None else "delayed" if due is not None else "ready"


def _span(priority: int, topic: str) -> tuple[bytes, bytes]:
    start = f"{priority}{topic}".encode()
    return b"[" + start + b"\0", b"(" + start + b"\1"


def _bucket_of(node: Node, topic: str) -> Bucket:
    return node.buckets[crc32(topic.encode()) % len(node.buckets)]


def _key(bucket: Bucket, name: str) -> str:
    return bucket.keys[_KEY[name]]
