"""The page about access: passwords of both accounts, the log of changes."""

from __future__ import annotations

import pytest

from dq.db.admin_store import Change
from tests.web.browser import PASSWORD
from tests.web.conftest import Served

NEW = {"password": "another password", "again": "another password", "current": PASSWORD}


async def test_a_viewer_gets_a_password_and_loses_it_again(served: Served) -> None:
    browser, viewer = await served.visitor(), served.browser()
    assert (await viewer.log_in("viewer", NEW["password"])).status == 401
    assert (await browser.post("/access/password", {"user": "viewer", **NEW})).status == 303
    page = await browser.get("/access")
    assert "The password of viewer is changed" in page.words
    assert "of viewer is changed" not in (await browser.get("/access")).words, "it is said once"
    assert (await viewer.log_in("viewer", NEW["password"])).status == 303
    assert (await browser.post("/access/viewer")).status == 303
    assert (await viewer.get("/")).status == 303
    changes = (await served.admin.store.changes()).changes
    told = [(one.who, one.action, one.target, one.before, one.after) for one in changes]
    assert told[0] == ("admin", "password", "viewer", "set", None)
    assert ("admin", "password", "viewer", None, "set anew") in told


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"password": "short", "again": "short"}, "must have at least 8 characters"),
        ({"again": "something else"}, "is not the same"),
        ({"current": "not it"}, "is wrong"),
    ],
)
async def test_a_faulty_form_changes_nothing_and_says_why(
    served: Served, wrong: dict[str, str], words: str
) -> None:
    browser = await served.visitor()
    reply = await browser.post("/access/password", {"user": "viewer", **NEW, **wrong})
    assert (reply.status, words in reply.words) == (422, True)
    assert NEW["password"] not in reply.text and PASSWORD not in reply.text
    assert served.admin.accounts.stamp("viewer") is None


async def test_an_open_session_is_no_way_to_guess_the_password(served: Served) -> None:
    browser = await served.visitor()
    fields = {"user": "viewer", **NEW, "current": "guess"}
    for _ in range(3):
        await browser.post("/access/password", fields)
    reply = await browser.post("/access/password", {**fields, "current": PASSWORD})
    assert (reply.status, "try again in 1 s" in reply.words) == (422, True)
    served.turn_ms(1_001)
    reply = await browser.post("/access/password", {**fields, "current": PASSWORD})
    assert reply.status == 303


async def test_an_unknown_account_is_not_found(served: Served) -> None:
    browser = await served.visitor()
    assert (await browser.post("/access/password", {"user": "root", **NEW})).status == 404


async def test_the_log_of_changes_has_pages_and_can_be_narrowed(served: Served) -> None:
    for number in range(120):
        change = Change(number, "admin", "topic.put", f"t{number % 2}", "old", f"new {number}")
        await served.admin.store.add_change(change)
    browser = await served.visitor()
    first = await browser.get("/access?target=t1")
    assert "new 119" in first.words and "new 118" not in first.words
    assert "Only t1." in first.words and "Older" in first.words
    following = first.text.partition('rel="next" href="')[2].partition('"')[0]
    second = await browser.get(following.replace("&amp;", "&"))
    assert "new 17" in second.words and "new 119" not in second.words
    assert "Newest" in second.words and "Older" not in second.words


async def test_tokens_are_listed_without_themselves(served: Served) -> None:
    token = await served.admin.store.make_token("shop <b>", "admin")
    page = await (await served.visitor()).get("/access")
    assert "shop <b>" in page.words and token[:7] in page.words and token not in page.text
    assert "shop" not in (await (await served.visitor("viewer")).get("/access")).words


async def test_with_sql_away_a_password_can_be_changed(served: Served) -> None:
    browser = await served.visitor()
    (served.settings.data_dir / "dq.db").unlink()
    assert (await browser.post("/access/password", {"user": "viewer", **NEW})).status == 303
    assert (await served.browser().log_in("viewer", NEW["password"])).status == 303
