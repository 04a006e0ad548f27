"""What a worker takes along: its nodes, its own log and writer, the topics.

Everything is made in the child, in the loop that uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from dq.core.node_file import FILE, read_node_file
from dq.core.settings import Settings
from dq.log.log import Log
from dq.queue.nodes import Nodes, node_name
from dq.queue.store import Store
from dq.queue.writer import ANSWER_WITHIN_MS, Writer
from dq.workers.base import Context


async def open_nodes(settings: Settings) -> Nodes:
    """The nodes of the settings and those added in the admin, their buckets known."""
    file = read_node_file(settings.data_dir / FILE)
    names = {node_name(url, settings.embedded_url) for url in settings.redis_urls}
    more = [node.url for node in file.added if node_name(node.url) not in names]
    urls = (*settings.redis_urls, *more)
    nodes = Nodes(urls, settings.buckets, settings.embedded_url)
    for node in nodes.all:
        node.is_draining = node.name in file.draining
    await nodes.open(settings.data_dir / "nodes.json")
    return nodes


@dataclass(frozen=True)
class Outfit:
    """The nodes and this process's writer, at work."""

    nodes: Nodes
    store: Store
    writer: Writer

    async def close(self) -> None:
        """Writer first: it finishes what was accepted."""
        await self.writer.close()
        await self.nodes.close()


async def open_outfit(
    ctx: Context,
    *,
    lazy: bool,
    asks_replica: bool = False,
    answer_within_ms: int | None = ANSWER_WITHIN_MS,
) -> Outfit:
    """Nodes, and a writer on a new log. `lazy` and what follows: see Writer."""
    nodes = await open_nodes(ctx.settings)
    store = Store()
    names = [bucket.name for bucket in nodes.buckets]
    log = Log(ctx.settings.data_dir / "log", ctx.name, names)
    writer = Writer(
        log,
        store,
        nodes.buckets,
        lazy=lazy,
        asks_replica=asks_replica,
        answer_within_ms=answer_within_ms,
    )
    writer.start()
    return Outfit(nodes, store, writer)


async def work_until_stopping(ctx: Context, *work: Coroutine[Any, Any, None]) -> None:
    """Run until the worker is to stop, then cancel; whatever fails first ends it with its error."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    stop = asyncio.create_task(ctx.stopping.wait())
    done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (stop, *tasks):
        task.cancel()
    await asyncio.gather(stop, *tasks, return_exceptions=True)
    for task in done - {stop}:
        task.result()
