"""What dq is measured against: plain aiohttp, which stores nothing and promises nothing.

python -m dq.bench.bare serve              an application that parses the same pushes
python -m dq.bench.bare call URL JOBS      a client that makes the same callbacks
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from dq.bench.figures import Run
from dq.bench.load import body_of
from dq.core.clock import mono_ms

IN_FLIGHT = 500
_encode = msgspec.json.Encoder().encode


async def _push(request: web.Request) -> web.Response:
    job = msgspec.json.decode(await request.read())
    doc = {"topic": job["topic"], "id": job["id"], "due": 0, "state": "delayed"}
    body = _encode({**doc, "result": "created"})
    return web.Response(body=body, status=201, content_type="application/json")


async def _push_batch(request: web.Request) -> web.Response:
    jobs = msgspec.json.decode(await request.read())["jobs"]
    doc = {"due": 0, "state": "delayed", "result": "created", "status": 201}
    results = [{"topic": job["topic"], "id": job["id"], **doc} for job in jobs]
    return web.Response(body=_encode({"results": results}), content_type="application/json")


def _serve() -> None:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.add_routes([web.post("/v1/jobs", _push), web.post("/v1/jobs/batch", _push_batch)])
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        print(listening.getsockname()[1], flush=True)
        loop = uvloop.new_event_loop()
        web.run_app(app, sock=listening, access_log=None, print=None, loop=loop)


async def _call(url: str, jobs: int) -> None:
    headers = {"Content-Type": "application/json"}
    numbers = iter(range(jobs))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as session:

        async def call(number: int) -> None:
            async with session.post(url, data=body_of(number), headers=headers) as response:
                response.raise_for_status()
                await response.read()

        async def work() -> None:
            for number in numbers:
                await call(number)

        await asyncio.gather(*(call(number) for number in range(IN_FLIGHT)))  # connects
        began_ms, cpu_s = mono_ms(), _cpu_s()
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        took_s, cpu_s = (mono_ms() - began_ms) / 1000, _cpu_s() - cpu_s
    print(_encode(Run(jobs / took_s, cpu_s * 1e6 / jobs)).decode())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        uvloop.run(_call(sys.argv[2], int(sys.argv[3])))
