"""The producers' API as one aiohttp application: the calls, and the one door before them.

The door checks who calls, runs the call, and turns whatever it raises into problem+json; no call
catches for itself. On a stop, what is being committed is brought to its end first.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from dq.api.dead import DeadCalls
from dq.api.deps import Api, Commits
from dq.api.guard import Guard
from dq.api.health import HealthCalls
from dq.api.jobs import JobCalls
from dq.api.problems import answer_error
from dq.api.restoring import RestoreCalls
from dq.api.searches import SearchCalls
from dq.api.topics import TopicCalls

KEEPALIVE_S = 75.0
STOP_WITHIN_S = 5.0
"""How long a stop waits for requests that are not all there; well within the master's patience."""

DRAIN_S = 2.0
"""How long the rest of a refused body is read and thrown away, so that the answer gets through."""


def make_app(deps: Api) -> web.Application:
    """The application. Serve it by `make_runner`, which sets what an application can't."""
    settings = deps.settings
    commits = Commits()
    guard = Guard(settings.api_tokens, [settings.api_host], deps.token_book)
    app = web.Application(middlewares=[_door(guard)])
    jobs, topics = JobCalls(deps, commits), TopicCalls(deps, commits)
    searches, health, restores = SearchCalls(deps), HealthCalls(deps), RestoreCalls(deps)
    dead = DeadCalls(deps.dead, commits).routes() if deps.dead else []
    calls = (jobs, searches, topics, restores, health)
    for route in (*dead, *(route for some in calls for route in some.routes())):
        app.router.add_routes([route])
        # A slash at the end is forgiven; one that belongs to an id comes as %2F.
        app.router.add_route(route.method, route.path + "/", route.handler)

    async def finish_commits(_: web.Application) -> None:
        await commits.finish()

    app.on_shutdown.append(restores.stop)
    app.on_cleanup.append(finish_commits)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """A runner for `app`. Bodies come in as they were sent, a compressed one is refused; a client
    that hangs up cancels nothing."""
    log = logging.getLogger("dq.api.http")
    log.addFilter(_is_our_affair)
    return web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=False,
        keepalive_timeout=KEEPALIVE_S,
        lingering_time=DRAIN_S,
        shutdown_timeout=STOP_WITHIN_S,
        logger=log,
    )


def _is_our_affair(record: logging.LogRecord) -> bool:
    """What some client sent that is no HTTP has been answered 400; it is no error of dq's."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def _door(guard: Guard) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            guard.check(request)
            return await handler(request)
        except Exception as error:
            return answer_error(error, request)

    return answer
