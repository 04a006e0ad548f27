"""Who may call: tokens, and without one only programs on this machine."""

from __future__ import annotations

import pytest

from tests.api.conftest import Reply, Served, Start, assert_problem

LOCAL = ["localhost", "LOCALHOST:6789", "127.0.0.1", "127.0.0.1:80", "127.9.9.9", "[::1]:6789"]
FOREIGN = ["evil.com", "localhost.evil.com", "127.0.0.1.nip.io", "192.168.1.5", "0.0.0.0:6789"]
FOREIGN += ["evil.com:localhost", "[::2]", "", "127.1", "localhost@evil.com", "[::1"]


async def push_as(api: Served, **headers: str) -> Reply:
    return await api.call("POST", "/v1/jobs", {"topic": "t"}, **headers)


@pytest.mark.parametrize("host", LOCAL)
async def test_a_name_of_this_machine_is_let_in(api: Served, host: str) -> None:
    assert (await push_as(api, Host=host)).status == 201


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_foreign_host_is_refused(api: Served, host: str) -> None:
    assert_problem(await push_as(api, Host=host), 403, "forbidden")
    assert api.schedule.pushed == []


async def test_the_name_it_listens_by_is_its_own(start_api: Start) -> None:
    api = await start_api(DQ_API_HOST="localhost")
    assert (await push_as(api, Host="localhost:1")).status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.com"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:6789"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "Cross-Site"},
    ],
)
async def test_what_a_web_page_sends_is_refused(api: Served, headers: dict[str, str]) -> None:
    for method, path in [
        ("POST", "/v1/jobs"),
        ("GET", "/v1/topics"),
        ("DELETE", "/v1/topics/t"),
        ("POST", "/v1/jobs/t/1/run"),
    ]:
        assert_problem(await api.call(method, path, **headers), 403, "forbidden")
    assert "t" in api.book.topics


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_an_address_typed_by_a_person_is_let_in(api: Served, site: str) -> None:
    assert (await api.call("GET", "/v1/topics", Sec_Fetch_Site=site)).status == 200


async def test_a_form_in_a_web_page_can_not_push_even_from_an_old_browser(api: Served) -> None:
    reply = await push_as(api, Content_Type="text/plain")
    assert_problem(reply, 415, "media-type")


@pytest.mark.parametrize("head", [b"GET /v1/topics HTTP/1.0\r\n\r\n"])
async def test_without_a_host_it_is_refused(api: Served, head: bytes) -> None:
    assert b" 403 " in await api.speak(head)


async def test_two_hosts_are_refused(api: Served) -> None:
    answer = await api.speak(
        b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))


@pytest.fixture
async def locked(start_api: Start) -> Served:
    return await start_api(DQ_API_TOKENS="first,zweites")


@pytest.mark.parametrize("header", ["Bearer first", "bearer zweites", "Bearer  first"])
async def test_each_token_opens(locked: Served, header: str) -> None:
    assert (await push_as(locked, Authorization=header)).status == 201


@pytest.mark.parametrize(
    "header",
    [
        *("Bearer", "Bearer ", "Bearer firs", "Bearer firstt", "first", "Basic first"),
        *("Bearer FIRST", "Bearer first,zweites", "Bearer ünïcödé", "Bearer " + "x" * 5000),
    ],
)
async def test_anything_else_is_401(locked: Served, header: str) -> None:
    reply = await push_as(locked, Authorization=header)
    assert_problem(reply, 401, "unauthorized")
    assert reply.headers["WWW-Authenticate"] == 'Bearer realm="dq"'


async def test_no_token_at_all_is_401_for_every_call(locked: Served) -> None:
    for path in ("/v1/jobs", "/v1/topics", "/v1/jobs/t/1", "/v1/nothing", "/metrics"):
        reply = await locked.call("GET", path)
        assert_problem(reply, 401, "unauthorized")
        assert b"first" not in reply.raw


async def test_with_a_token_the_caller_may_come_from_anywhere(locked: Served) -> None:
    reply = await push_as(
        locked, Authorization="Bearer first", Host="dq.example.com", Origin="https://example.com"
    )
    assert reply.status == 201


async def test_health_is_open_to_everyone(locked: Served, api: Served) -> None:
    for served in (locked, api):
        for path in ("/healthz", "/readyz"):
            assert (await served.call("GET", path, Host="10.0.0.7:6789")).status == 200
        reply = await served.call("GET", "/healthz/../v1/topics", Host="10.0.0.7:6789")
        assert reply.status in (401, 403)
