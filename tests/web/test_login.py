"""Logging in and out: who gets in, for how long, and what guessing costs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dq.db.admin_store import AdminStore
from dq.web.accounts import Accounts
from dq.web.pauses import Pauses
from dq.web.sessions import IDLE_MS, LONGEST_MS
from tests.web.browser import PASSWORD
from tests.web.conftest import Served


async def test_without_a_log_in_every_page_leads_to_it(served: Served) -> None:
    browser = served.browser()
    for path in ("/", "/topics", "/jobs?state=dead", "/access", "/nope"):
        reply = await browser.get(path)
        assert (reply.status, reply.location.partition("?")[0]) == (303, "/login"), path
    assert (await browser.get("/live", Accept="text/event-stream")).status == 401
    assert (await browser.post("/access/password")).status in (401, 403)


async def test_the_right_password_leads_back_to_where_one_wanted_to_go(served: Served) -> None:
    browser = served.browser()
    wanted = (await browser.get("/jobs?state=dead&topic=a%26b")).location
    assert 'value="/jobs?state=dead&amp;topic=a%26b"' in (await browser.get(wanted)).text
    reply = await browser.log_in(to="/jobs?state=dead&topic=a%26b")
    assert (reply.status, reply.location) == (303, "/jobs?state=dead&topic=a%26b")
    assert (await browser.get("/")).status == 200


@pytest.mark.parametrize("to", ["//evil.example", "/\\evil.example", "https://evil.example", "x"])
async def test_a_log_in_never_leads_elsewhere(served: Served, to: str) -> None:
    assert (await served.browser().log_in(to=to)).location == "/"


@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("nobody", PASSWORD), ("viewer", PASSWORD)]
)
async def test_a_wrong_name_and_a_wrong_password_are_told_alike(
    served: Served, user: str, password: str
) -> None:
    reply = await served.browser().log_in(user, password)
    assert reply.status == 401
    assert "The name or the password is wrong." in reply.words


async def test_the_session_cookie_is_out_of_reach_of_scripts_and_other_sites(
    served: Served,
) -> None:
    browser = served.browser()
    reply = await browser.log_in()
    (cookie,) = reply.headers.getall("Set-Cookie")
    assert cookie.startswith("dq_session_8088=")
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    await browser.get("/login")
    again = served.browser(**{"X-Forwarded-Proto": "https"})
    assert "Secure" in (await again.get("/login")).headers["Set-Cookie"]


async def test_logging_out_ends_the_session_itself(served: Served) -> None:
    browser = await served.visitor()
    token = browser.cookie("dq_session")
    assert (await browser.post("/logout")).location == "/login"
    stale = served.browser(Cookie=f"dq_session_8088={token}")
    assert (await stale.get("/")).status == 303


async def test_a_session_ends_when_it_is_not_used_and_after_a_week_in_any_case(
    served: Served,
) -> None:
    idle = await served.visitor()
    served.turn_ms(IDLE_MS + 1)
    assert (await idle.get("/")).status == 303
    busy = await served.visitor()
    for _ in range(LONGEST_MS // IDLE_MS):
        served.turn_ms(IDLE_MS - 1000)
        assert (await busy.get("/access")).status == 200
    served.turn_ms(IDLE_MS - 1000)
    assert (await busy.get("/access")).status == 303


async def test_sessions_outlive_a_reload_and_sql_being_away(served: Served) -> None:
    browser = await served.visitor()
    (served.settings.data_dir / "dq.db").unlink()
    assert (await browser.get("/")).status == 200
    other = served.browser()
    assert (await other.log_in()).status == 303
    reply = await other.get("/access")
    assert "SQL is away" in reply.words


async def test_after_wrong_passwords_come_growing_pauses(served: Served) -> None:
    browser = served.browser()
    statuses = [(await browser.log_in(password="no")).status for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    refused = await browser.log_in()
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert "try again in 1 s" in refused.words
    served.turn_ms(1_001)
    assert (await browser.log_in(password="no")).status == 401
    served.turn_ms(1_001)
    assert (await browser.log_in()).status == 429
    served.turn_ms(1_000)
    assert (await browser.log_in()).status == 303


def test_pauses_grow_to_a_minute_and_are_forgotten_after_an_hour() -> None:
    pauses, now_ms, waits = Pauses(), 0, []
    for _ in range(12):
        now_ms += pauses.wait_ms("admin", "::1", now_ms)
        pauses.begin("admin", "::1", now_ms)
        waits.append(pauses.wait_ms("admin", "::1", now_ms) // 1000)
    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    pauses.begin("admin", "::1", now_ms + 3_700_000)
    assert pauses.wait_ms("admin", "::1", now_ms + 3_700_000) == 0


def test_guessing_from_everywhere_slows_down_strangers_only() -> None:
    pauses = Pauses()
    pauses.begin("admin", "10.0.0.1", 0)
    pauses.succeed("admin", "10.0.0.1", 0)
    for host in range(100):
        pauses.begin("admin", f"192.0.2.{host}", 1)
    assert pauses.wait_ms("admin", "198.51.100.1", 1) == 5_000
    assert pauses.wait_ms("admin", "10.0.0.1", 1) == 0
    pauses.begin("admin", "2001:db8::1", 2)
    pauses.begin("admin", "2001:db8::2", 2)
    pauses.begin("x", "2001:db8::3", 2)
    assert pauses.wait_ms("x", "2001:db8::4", 2) == 1_000, "one network counts as one"


async def test_attempts_sent_at_once_don_t_all_slip_through(served: Served) -> None:
    browser = served.browser()
    await browser.get("/login")
    fields = {"user": "admin", "password": "no"}
    replies = await asyncio.gather(*(browser.post("/login", fields) for _ in range(20)))
    assert sum(reply.status == 401 for reply in replies) == 3


async def test_a_changed_password_ends_the_sessions_of_the_old_one(served: Served) -> None:
    one, other = await served.visitor(), await served.visitor()
    fields = {"user": "admin", "password": "a newer one", "again": "a newer one"}
    reply = await one.post("/access/password", {**fields, "current": PASSWORD})
    assert reply.status == 303
    assert (await one.get("/")).status == 303
    assert (await other.get("/")).status == 303
    assert (await other.log_in()).status == 401
    assert (await other.log_in(password="a newer one")).status == 303


async def test_a_password_is_made_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    made = Accounts(tmp_path).prepare("")
    assert made is not None and len(made) == 19
    assert made not in (tmp_path / "admin.json").read_text()
    assert Accounts(tmp_path).prepare("") is None
    assert await Accounts(tmp_path).check("admin", made)


async def test_the_setting_wins_when_it_changes_and_not_before(tmp_path: Path) -> None:
    folder = tmp_path
    accounts = Accounts(folder)
    accounts.prepare("from the setting")
    await accounts.put("admin", "from the page")
    again = Accounts(folder)
    again.prepare("from the setting")
    assert await again.check("admin", "from the page")
    again.prepare("a new setting")
    assert await again.check("admin", "a new setting")
    assert await accounts.check("admin", "a new setting"), "the other process sees the file"
    text = (folder / "admin.json").read_text()
    assert "setting" not in text and "argon2id" in text
    assert (folder / "admin.json").stat().st_mode & 0o077 == 0


async def test_a_broken_file_lets_nobody_in_and_says_so(served: Served) -> None:
    (served.settings.data_dir / "admin.json").write_text("{")
    reply = await served.browser().log_in()
    assert reply.status == 401 and "can't be read" in reply.words


async def test_log_ins_are_in_the_log_of_changes(served: Served) -> None:
    await served.visitor()
    store: AdminStore = served.admin.store
    (change,) = (await store.changes()).changes
    assert (change.who, change.action, change.address) == ("admin", "log-in", "127.0.0.1")
