"""Where the buckets of a node stand, all of them asked together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dq.queue.keys import NODE_KEY
from dq.queue.nodes import Bucket, Node, ask_all


class Position(NamedTuple):
    """Of one bucket: its epoch (b"" where it is not there), its state, and up to where a writer's
    records are applied in it."""

    epoch: bytes
    state: str
    applied: int


async def read_positions(node: Node, buckets: Sequence[Bucket], writer: bytes) -> list[Position]:
    """One for each of these buckets of `node`. Raises NodeAway."""
    answers = await ask_all(node, [_question(bucket, writer) for bucket in buckets])
    return [_position(answer) for answer in answers]


async def look_at(node: Node) -> list[Position]:
    """One for each bucket of `node`, with no writer in mind; a node that was wiped is told again
    how many it has. Raises NodeAway, NodeFull."""
    number = ("HSETNX", NODE_KEY, "buckets", len(node.buckets))
    questions = [_question(bucket, b"") for bucket in node.buckets]
    _, *answers = await ask_all(node, [number, *questions])
    return [_position(answer) for answer in answers]


def _question(bucket: Bucket, writer: bytes) -> tuple[Any, ...]:
    return "HMGET", bucket.keys[0], "epoch", "state", b"h" + writer


def _position(answer: Sequence[bytes | None]) -> Position:
    epoch, state, applied = answer
    return Position(epoch or b"", (state or b"").decode(), int(applied or 0))
