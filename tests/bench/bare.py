"""What pushing is measured against: aiohttp.web that parses the same JSON and stores nothing.

python -m tests.bench.bare PORT
"""

from __future__ import annotations

import sys

import msgspec
import uvloop
from aiohttp import web

_encode = msgspec.json.Encoder().encode


async def push(request: web.Request) -> web.Response:
    job = msgspec.json.decode(await request.read())
    doc = {"topic": job["topic"], "id": job["id"], "due": 0, "state": "delayed"}
    body = _encode({**doc, "result": "created"})
    return web.Response(body=body, status=201, content_type="application/json")


async def push_batch(request: web.Request) -> web.Response:
    jobs = msgspec.json.decode(await request.read())["jobs"]
    results = [{"topic": job["topic"], "id": job["id"], "status": 201} for job in jobs]
    return web.Response(body=_encode({"results": results}), content_type="application/json")


def main() -> None:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.add_routes([web.post("/v1/jobs", push), web.post("/v1/jobs/batch", push_batch)])
    loop = uvloop.new_event_loop()
    port = int(sys.argv[1])
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=loop)


if __name__ == "__main__":
    main()
