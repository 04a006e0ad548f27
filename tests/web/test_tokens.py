"""API tokens on the page Access: made, shown once, revoked, and what the API's door makes of it."""

from __future__ import annotations

import re

import pytest
from multidict import CIMultiDict

from dq.api.guard import Guard
from dq.api.problems import Refused
from dq.db.token_book import TokenBook
from tests.web.conftest import Served
from tests.web.test_pages import HOSTILE, assert_is_harmless


def _is_let_in(served: Served, token: str = "") -> bool:
    """Whether a server that follows the file lets a local caller in."""
    book = TokenBook(served.settings.data_dir / "tokens.json", None)
    head = CIMultiDict({"Host": "localhost"})
    if token:
        head["Authorization"] = f"Bearer {token}"
    try:
        Guard((), (), book).check_head("/v1/jobs", head)
    except Refused as error:
        assert error.problem.status == 401
        return False
    return True


async def test_a_token_is_shown_once_opens_at_once_and_can_be_revoked(served: Served) -> None:
    browser = await served.visitor()
    assert _is_let_in(served)
    made = await browser.post("/access/tokens", {"name": "shop"})
    (token,) = set(re.findall(r"dq_[\w-]{20,}", made.text))
    assert "only time that it is shown" in made.words
    assert token not in str(made.headers) and "no-store" in made.headers["Cache-Control"]
    assert token not in (await browser.get("/access")).text
    assert _is_let_in(served, token) and not _is_let_in(served) and not _is_let_in(served, "no")
    (listed,) = await served.admin.store.tokens()
    assert (await browser.post(f"/access/tokens/{listed.no}/revoke")).status == 303
    page = await browser.get("/access")
    assert "The token shop opens nothing any more." in page.words and "revoked" in page.words
    assert _is_let_in(served) and not _is_let_in(served, token)
    changes = (await served.admin.store.changes(target="shop")).changes
    assert [one.action for one in changes] == ["token.revoke", "token.make"]
    assert token not in str((await served.admin.store.changes()).changes)


@pytest.mark.parametrize("name", ["", "   ", "x" * 101])
async def test_a_token_needs_a_name(served: Served, name: str) -> None:
    browser = await served.visitor()
    reply = await browser.post("/access/tokens", {"name": name})
    assert (reply.status, "must have 1 to 100 characters" in reply.words) == (422, True)
    assert await served.admin.store.tokens() == []


async def test_loading_the_answer_again_makes_no_second_token(served: Served) -> None:
    browser = await served.visitor()
    await browser.post("/access/tokens", {"name": "shop"})
    again = await browser.post("/access/tokens", {"name": "shop"})
    assert (again.status, "is the name of another token" in again.words) == (422, True)
    assert len(await served.admin.store.tokens()) == 1


async def test_a_token_is_revoked_once(served: Served) -> None:
    browser = await served.visitor()
    for path in ("/access/tokens/7/revoke", f"/access/tokens/{'9' * 30}/revoke"):
        assert (await browser.post(path)).status == 409
    assert (await browser.post("/access/tokens/x/revoke")).status == 404


async def test_a_hostile_name_is_only_text(served: Served) -> None:
    browser = await served.visitor()
    made = await browser.post("/access/tokens", {"name": HOSTILE})
    assert_is_harmless(made)
    assert "<script>alert(1)</script>" in made.words
    assert_is_harmless(await browser.get("/access"))


async def test_the_given_tokens_open_beside_those_that_were_made(served: Served) -> None:
    token = await served.admin.store.make_token("shop", "admin")
    await served.admin.tokens.sync()
    guard = Guard(("given",), (), served.admin.tokens)
    for one in (token, "given"):
        guard.check_head("/v1/jobs", CIMultiDict({"Authorization": f"Bearer {one}"}))
    with pytest.raises(Refused):
        guard.check_head("/v1/jobs", CIMultiDict({"Authorization": "Bearer neither"}))
