"""Every key name in Redis, made in one place.

All keys of a bucket share the hash tag {dqN}, so on Redis Cluster they live in one slot and a
script may touch them all. Each script gets all of them, in this order, as KEYS.
"""

from __future__ import annotations

BUCKET_KEYS = (
    "meta",  # hash: epoch, state; h<writer> applied sequence, o<writer> its last outcomes; cycle
    "jobs",  # hash: digest -> job, packed; exactly the unfinished ones
    "due",  # sorted set: digest, by due ms: the delayed ones
    "ready",  # sorted set by text: priority, topic, NUL, due, digest: the ready ones
    "turns0",  # sorted sets, one a priority: the topics that have something ready, by whose turn
    "turns1",
    "turns2",
    "leases",  # sorted set: digest, by the ms at which the lease runs out: the running ones
    "holders",  # hash: digest -> token, version and topic of its lease
    "limits",  # hash: topic -> [held, concurrency, rate]: only topics that have a limit
    "gauges",  # hash: n<topic> callbacks in flight, t<topic> when the next may start (rate)
    "crashes",  # hash: digest -> how often its lease was lost
    "floors",  # hash: digest -> stamp: replayed pushes up to it are finished already
    "floored",  # sorted set: digest, by the ms at which its floor may go
    "wake",  # list: a token for the timer: something is due earlier than it thinks
    "work",  # list: a token for the consumers: something is ready
)


def bucket_keys(number: int) -> tuple[str, ...]:
    """The keys of bucket `number`, in the order in which every script expects them."""
    return tuple(f"{{dq{number}}}:{name}" for name in BUCKET_KEYS)


NODE_KEY = "dq:node"
"""hash on each node: buckets = how many it was opened with."""
