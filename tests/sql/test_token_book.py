"""Tokens on their way from SQL to the servers, and what is believed while SQL is away."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from dq.core.errors import DatabaseAway
from dq.db.admin_store import AdminStore, token_digest
from dq.db.database import Database
from dq.db.tables import api_tokens
from dq.db.token_book import USED_EACH_MS, TokenBook


@pytest.fixture
def admin_store(database: Database) -> AdminStore:
    return AdminStore(database)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


async def test_a_token_opens_where_the_file_is_followed_until_it_is_revoked(
    admin_store: AdminStore, path: Path
) -> None:
    book, server = TokenBook(path, admin_store), TokenBook(path, None)
    told: list[bool] = []
    server.changed.append(lambda: told.append(server.is_wanted))
    assert not server.is_wanted
    token = await admin_store.make_token("shop", "admin")
    digest = token_digest(token)
    await book.sync()
    assert not server.opens(digest)
    assert server.refresh() and not server.refresh()
    assert server.opens(digest) and not server.opens(token_digest("dq_other"))
    assert token not in path.read_text() and path.stat().st_mode & 0o077 == 0
    (listed,) = await admin_store.tokens()
    await admin_store.revoke_token(listed.no)
    await book.sync()
    server.refresh()
    assert not server.opens(digest) and not server.is_wanted
    assert told == [True, False]


async def test_nothing_is_written_while_nothing_changes(
    admin_store: AdminStore, path: Path
) -> None:
    await admin_store.make_token("shop", "admin")
    book = TokenBook(path, admin_store)
    await book.sync()
    before = path.stat()
    await book.sync()
    assert path.stat() == before


async def test_with_sql_away_the_last_known_tokens_open(
    admin_store: AdminStore, database: Database, path: Path
) -> None:
    digest = token_digest(await admin_store.make_token("shop", "admin"))
    await TokenBook(path, admin_store).sync()
    await database.close()
    book = TokenBook(path, admin_store)
    with pytest.raises(DatabaseAway):
        await book.sync()
    assert book.opens(digest)


async def test_a_file_that_cannot_be_read_lets_nobody_in_until_it_is_made_anew(
    admin_store: AdminStore, path: Path
) -> None:
    digest = token_digest(await admin_store.make_token("shop", "admin"))
    path.write_text("{torn")
    book = TokenBook(path, admin_store)
    assert book.is_wanted and not book.opens(digest)
    await book.sync()
    assert book.opens(digest)


async def test_a_broken_file_without_any_token_opens_again(
    admin_store: AdminStore, path: Path
) -> None:
    path.write_text("")
    book = TokenBook(path, admin_store)
    assert book.is_wanted
    await book.sync()
    assert not book.is_wanted and not TokenBook(path, None).is_wanted


async def test_a_database_made_anew_gets_the_tokens_that_are_known(
    admin_store: AdminStore, database: Database, path: Path
) -> None:
    digest = token_digest(await admin_store.make_token("shop", "admin"))
    book = TokenBook(path, admin_store)
    await book.sync()
    async with database.begin() as conn:
        await conn.execute(sa.delete(api_tokens))
    await book.sync()
    assert book.opens(digest)
    (listed,) = await admin_store.tokens()
    assert listed.made_by == "dq"
    await admin_store.revoke_token(listed.no)
    await book.sync()
    assert not book.opens(digest)


async def test_the_last_use_is_written_at_most_once_a_minute(
    admin_store: AdminStore, path: Path
) -> None:
    digest = token_digest(await admin_store.make_token("shop", "admin"))
    book = TokenBook(path, admin_store)
    await book.sync()
    used = []
    now_ms = 1_800_000_000_000
    for passed_ms in (0, 1, USED_EACH_MS - 1, USED_EACH_MS, 9 * USED_EACH_MS):
        if passed_ms < 9 * USED_EACH_MS:
            book.opens(digest)
        await book.note_used(now_ms + passed_ms)
        used.append((await admin_store.tokens())[0].used_ms)
    assert used == [now_ms, now_ms, now_ms, now_ms + USED_EACH_MS, now_ms + USED_EACH_MS]
    (listed,) = await admin_store.tokens()
    await admin_store.note_used(listed.no, now_ms)
    assert (await admin_store.tokens())[0].used_ms == now_ms + USED_EACH_MS, "never back"
