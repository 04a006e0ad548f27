"""The log of changes and the API's tokens."""

from __future__ import annotations

import pytest

from dq.core.errors import Invalid
from dq.db.admin_store import AdminStore, Change, token_digest
from dq.db.database import Database
from dq.db.journal_store import JournalStore
from dq.db.rows import State
from tests.sql.journal import Writer


@pytest.fixture
def admin_store(database: Database) -> AdminStore:
    return AdminStore(database)


async def test_changes_are_read_newest_first_page_by_page(admin_store: AdminStore) -> None:
    for number in range(5):
        await admin_store.add_change(Change(number, "admin", "x", f"t{number % 2}"))
    first = await admin_store.changes(limit=2)
    second = await admin_store.changes(limit=2, cursor=first.next_cursor)
    last = await admin_store.changes(limit=2, cursor=second.next_cursor)
    times = [[change.at_ms for change in page.changes] for page in (first, second, last)]
    assert times == [[4, 3], [2, 1], [0]]
    assert last.next_cursor is None
    only = await admin_store.changes(target="t1")
    assert [change.at_ms for change in only.changes] == [3, 1]


async def test_a_change_keeps_what_it_is_told_and_cuts_what_is_too_long(
    admin_store: AdminStore,
) -> None:
    change = Change(1, "админ", "a", "т" * 2000, None, "x" * 100_000, "::1", "h")
    await admin_store.add_change(change)
    (kept,) = (await admin_store.changes()).changes
    assert (kept.who, kept.before, kept.address) == ("админ", None, "::1")
    assert kept.target == "т" * 512
    assert kept.after is not None and len(kept.after) == 65_536


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1;--", "9" * 30])
async def test_a_foreign_cursor_is_refused(admin_store: AdminStore, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        await admin_store.changes(cursor=cursor)


async def test_a_token_is_shown_once_and_opens_until_it_is_revoked(
    admin_store: AdminStore,
) -> None:
    token = await admin_store.make_token("shop", "admin")
    (kept,) = await admin_store.tokens()
    assert token.startswith(kept.hint) and token not in repr(kept)
    assert (kept.name, kept.made_by, kept.used_ms, kept.revoked_ms) == ("shop", "admin", None, None)
    assert await admin_store.valid_digests() == {token_digest(token): kept.no}
    await admin_store.note_used(kept.no, 77)
    assert (await admin_store.tokens())[0].used_ms == 77
    revoked = await admin_store.revoke_token(kept.no)
    assert revoked is not None and revoked.name == "shop"
    assert await admin_store.revoke_token(kept.no) is None
    assert await admin_store.valid_digests() == {}
    assert (await admin_store.tokens())[0].revoked_ms is not None


async def test_jobs_of_a_state_are_counted_up_to_a_bound(
    admin_store: AdminStore, store: JournalStore
) -> None:
    writer = Writer(store, "w")
    for number in range(4):
        push = writer.push(f"{number}", number)
        writer.change(push, number + 10, State.DEAD)
    again = writer.push("0", 100)
    assert again.id == "0"
    await writer.ship()
    assert await admin_store.count_jobs(State.DEAD, 10) == 3
    assert await admin_store.count_jobs(State.DEAD, 2) == 2
    assert await admin_store.count_jobs(State.DONE, 2) == 0
