"""Liveness and readiness."""

from __future__ import annotations

from tests.api.conftest import Served, assert_problem


async def test_it_lives_whatever_is_away(api: Served) -> None:
    api.parts = {"nodes": "none takes writes"}
    reply = await api.call("GET", "/healthz")
    assert (reply.status, reply.doc) == (200, {"status": "ok"})


async def test_it_is_ready_when_no_part_is_missing(api: Served) -> None:
    reply = await api.call("GET", "/readyz")
    assert (reply.status, reply.doc["status"]) == (200, "ready")
    assert reply.doc["parts"]["consumers"] == "unknown"


async def test_it_is_not_ready_and_names_the_missing_part(api: Served) -> None:
    api.parts |= {"nodes": "127.0.0.1:6379 is away"}
    reply = await api.call("GET", "/readyz")
    doc = assert_problem(reply, 503, "not-ready")
    assert doc["missing"] == ["nodes"] and "6379 is away" in doc["detail"]
    assert reply.headers["Retry-After"]
