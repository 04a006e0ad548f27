"""Answers each connection on the API's socket with its pid."""

from __future__ import annotations

import asyncio
import os

from dq.workers.base import Context


async def run(ctx: Context) -> None:
    answers: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        answers.add(task)
        await reader.readline()
        writer.write(f"{os.getpid()}\n".encode())
        await writer.drain()
        writer.close()
        answers.discard(task)

    server = await asyncio.start_server(answer, sock=ctx.sockets["api"])
    ctx.ready()
    await ctx.stopping.wait()
    server.close()
    await asyncio.sleep(0)
    if answers:
        await asyncio.wait(answers)
