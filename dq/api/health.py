"""Whether this instance lives, and whether it can take and deliver jobs. Open to everyone.

Liveness asks nothing of Redis or SQL: restarting dq because they are away would help nobody.
"""

from __future__ import annotations

from aiohttp import web

from dq.api.deps import Api
from dq.api.problems import Problem, Refused
from dq.api.wire import answer_json

_FINE = ("ok", "unknown")


class HealthCalls:
    """Handlers of /healthz and /readyz."""

    def __init__(self, api: Api) -> None:
        self._ready = api.ready

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self.healthz), web.get("/readyz", self.readyz)]

    async def healthz(self, request: web.Request) -> web.Response:
        return answer_json({"status": "ok"})

    async def readyz(self, request: web.Request) -> web.Response:
        parts = dict(self._ready())
        missing = {name: state for name, state in parts.items() if state not in _FINE}
        if missing:
            raise Refused(_not_ready(missing, parts))
        return answer_json({"status": "ready", "parts": parts})


def _not_ready(missing: dict[str, str], parts: dict[str, str]) -> Problem:
    detail = "; ".join(f"{name}: {state}" for name, state in missing.items())
    more = {"missing": list(missing), "parts": parts}
    return Problem(503, "not-ready", "Not ready", detail, more=more, retry_after_s=2)
