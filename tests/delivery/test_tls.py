"""Callbacks to https endpoints, trusted and not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dq.delivery.http import Caller
from tests.delivery.certificates import Certificate, make_certificate
from tests.delivery.hostile import OK_BODY, HostileServer
from tests.delivery.requests import post
from tests.support import wait_until_async

GOOD = make_certificate()
OLD = make_certificate(is_expired=True)
OTHER = make_certificate("other.example", "192.0.2.1")


@pytest.fixture
async def trusting() -> AsyncIterator[Caller]:
    """Trusts GOOD's maker."""
    caller = Caller((), limit=5, tls=GOOD.for_client())
    yield caller
    await caller.close()


async def test_a_trusted_endpoint_is_called(trusting: Caller) -> None:
    async with HostileServer(GOOD.for_server()) as server:
        for _ in range(3):
            answer = await trusting.call(post(server.url("/ok"), 5))
            assert (answer.status, answer.body, answer.error) == (200, OK_BODY, None)
        assert server.connections == 1


async def test_a_lost_request_goes_out_again_over_tls(trusting: Caller) -> None:
    async with HostileServer(GOOD.for_server()) as server:
        await trusting.call(post(server.url("/ok"), 5))
        assert (await trusting.call(post(server.url("/stale"), 5))).status == 200
        assert len(server.requests) == 3


async def test_a_long_reply_over_tls_leaves_no_socket(trusting: Caller) -> None:
    async with HostileServer(GOOD.for_server()) as server:
        answer = await trusting.call(post(server.url("/endless"), 5))
        assert (answer.status, answer.cut) == (200, True)
        await wait_until_async(lambda: server.open_connections == 0)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (OLD, "certificate has expired"),
        (OTHER, "certificate is not valid for"),
        (GOOD, "self-signed certificate"),
    ],
)
async def test_a_bad_certificate_is_a_failure_with_its_reason(
    certificate: Certificate, reason: str
) -> None:
    tls = None if certificate is GOOD else certificate.for_client()
    caller = Caller((), limit=5, tls=tls)
    async with HostileServer(certificate.for_server()) as server:
        answer = await caller.call(post(server.url("/ok"), 5))
        assert answer.status is None
        assert answer.error is not None
        assert answer.error.startswith("TLS: ")
        assert reason in answer.error
        assert server.requests == []
    await caller.close()


async def test_no_tls_where_it_is_expected(caller: Caller) -> None:
    async with HostileServer() as server:
        url = server.url("/ok").replace("http:", "https:")
        answer = await caller.call(post(url, 0.3))
        assert answer.error == "timed out after 0.3 s"
        await wait_until_async(lambda: server.open_connections == 0)
