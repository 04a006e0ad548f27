"""A proxy before a Valkey that swallows replies: the command was carried out, nobody is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

SCRIPT = b"EVAL"
"""In the head of each call of a script: EVALSHA, or EVAL when Redis didn't know it yet."""


class CuttingProxy:
    """From one unix socket to another. The next `cuts` script calls lose their connection: after
    they were carried out, or, where `what` is "calls", before they arrive."""

    def __init__(self, server: Path, socket: Path) -> None:
        self.url = f"unix://{socket}"
        self.cuts = 0
        self.what: Literal["replies", "calls"] = "replies"
        self.calls = 0
        self._server = server
        self._socket = socket
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> CuttingProxy:
        self._listener = await asyncio.start_unix_server(self._serve, str(self._socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        there, to_there = await asyncio.open_unix_connection(str(self._server))
        try:
            await self._relay(reader, writer, there, to_there)
        except OSError:
            pass  # one of the two hung up: the connection ends below
        finally:
            self._connections.discard(task)
            writer.close()
            to_there.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        to_there: asyncio.StreamWriter,
    ) -> None:
        """Until either side hangs up, or a cut."""
        is_cut = False

        async def replies() -> None:
            while (data := await there.read(1 << 16)) and not is_cut:
                writer.write(data)
                await writer.drain()

        answering = asyncio.create_task(replies())
        try:
            asking = asyncio.create_task(reader.read(1 << 16))
            while True:
                await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
                if answering.done() or not (data := asking.result()):
                    return
                if SCRIPT in data[:40]:
                    self.calls += 1
                    is_cut = self.cuts > 0
                    self.cuts -= is_cut
                if is_cut and self.what == "calls":
                    return
                to_there.write(data)
                await to_there.drain()
                asking = asyncio.create_task(reader.read(1 << 16))
        finally:
            asking.cancel()
            answering.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
