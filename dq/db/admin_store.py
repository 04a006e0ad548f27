"""What the admin keeps in SQL: who changed what, and the API's tokens.

The log of changes is only ever added to. Of a token only its hash is kept, so it can be shown once
and never again; a revoked one stays in the list, because the log speaks of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256

import msgspec
import sqlalchemy as sa

from dq.core import clock
from dq.core.errors import FieldError, Invalid
from dq.db.database import Database
from dq.db.replaced import same_job
from dq.db.rows import State
from dq.db.tables import api_tokens, audit_log, messages

MOST_TEXT_CHARS = 65_536
TOKEN_PREFIX = "dq_"
_HINT_CHARS = 7


class Change(msgspec.Struct, frozen=True):
    """One line of the log: `who` did `action` to `target`, from `address`, on dq's `host`.

    `before` and `after` are texts for people, None where there is none; never a secret.
    """

    at_ms: int
    who: str
    action: str
    target: str = ""
    before: str | None = None
    after: str | None = None
    address: str = ""
    host: str = ""
    no: int = 0


class ChangePage(msgspec.Struct, frozen=True):
    """Newest first. `next_cursor` None: it is the last page."""

    changes: Sequence[Change]
    next_cursor: str | None


class Token(msgspec.Struct, frozen=True):
    """An API token as the list shows it. `hint` is how it begins; `used_ms` None: never."""

    no: int
    name: str
    hint: str
    made_ms: int
    made_by: str
    used_ms: int | None
    revoked_ms: int | None


class AdminStore:
    """Every method raises DatabaseAway."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_change(self, change: Change) -> None:
        """Write a line into the log; overlong texts are cut."""
        row = msgspec.structs.asdict(change)
        del row["no"]
        row["who"] = _cut(change.who, 255)
        row["target"] = _cut(change.target, 1024)
        for side in ("before", "after"):
            row[side] = None if row[side] is None else row[side][:MOST_TEXT_CHARS]
        async with self._database.begin(to_disk=True) as conn:
            await conn.execute(sa.insert(audit_log).values(row))

    async def changes(
        self, *, limit: int = 50, cursor: str | None = None, target: str | None = None
    ) -> ChangePage:
        """A page of the log. Raises Invalid for a cursor that no page gave."""
        query = sa.select(audit_log).order_by(audit_log.c.no.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(audit_log.c.no < _read_cursor(cursor))
        if target is not None:
            query = query.where(audit_log.c.target == target)
        async with self._database.read() as conn:
            found = [Change(**row._mapping) for row in await conn.execute(query)]
        more = len(found) > limit
        found = found[:limit]
        return ChangePage(found, str(found[-1].no) if more else None)

    async def make_token(self, name: str, made_by: str) -> str:
        """A new API token, given here and nowhere again."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        row = {
            "name": _cut(name, 255),
            "digest": token_digest(token),
            "hint": token[:_HINT_CHARS],
            "made_ms": clock.now_ms(),
            "made_by": _cut(made_by, 255),
        }
        async with self._database.begin(to_disk=True) as conn:
            await conn.execute(sa.insert(api_tokens).values(row))
        return token

    async def tokens(self) -> list[Token]:
        """All tokens, the newest first, those that were revoked too."""
        columns = [api_tokens.c[name] for name in Token.__struct_fields__]
        query = sa.select(*columns).order_by(api_tokens.c.no.desc()).limit(1000)
        async with self._database.read() as conn:
            return [Token(**row._mapping) for row in await conn.execute(query)]

    async def revoke_token(self, no: int) -> Token | None:
        """From now on it opens nothing; None when it is unknown or was revoked before."""
        is_it = (api_tokens.c.no == no) & api_tokens.c.revoked_ms.is_(None)
        columns = [api_tokens.c[name] for name in Token.__struct_fields__]
        async with self._database.begin(to_disk=True) as conn:
            row = (await conn.execute(sa.select(*columns).where(is_it))).first()
            if row is not None:
                revoke = sa.update(api_tokens).where(is_it).values(revoked_ms=clock.now_ms())
                await conn.execute(revoke)
        return None if row is None else Token(**row._mapping)

    async def valid_digests(self) -> dict[bytes, int]:
        """The hash of each token that opens -> its number."""
        query = sa.select(api_tokens.c.digest, api_tokens.c.no)
        async with self._database.read() as conn:
            rows = await conn.execute(query.where(api_tokens.c.revoked_ms.is_(None)))
            return {row.digest: row.no for row in rows}

    async def revoked_digests(self) -> frozenset[bytes]:
        """The hashes of the tokens that were revoked."""
        query = sa.select(api_tokens.c.digest).where(api_tokens.c.revoked_ms.is_not(None))
        async with self._database.read() as conn:
            return frozenset((await conn.execute(query)).scalars())

    async def note_used(self, no: int, at_ms: int) -> None:
        """A token was used; call it seldom, not with each request."""
        is_later = api_tokens.c.used_ms.is_(None) | (api_tokens.c.used_ms < at_ms)
        is_it = (api_tokens.c.no == no) & is_later
        async with self._database.begin() as conn:
            await conn.execute(sa.update(api_tokens).where(is_it).values(used_ms=at_ms))

    async def put_digests(self, digests: Sequence[bytes]) -> None:
        """Let tokens open of which only the hash is known, in a database that was made anew."""
        made_ms = clock.now_ms()
        for digest in digests:
            row = {"name": "known from before", "hint": "", "made_by": "dq"}
            try:
                async with self._database.begin(to_disk=True) as conn:
                    put = sa.insert(api_tokens).values(digest=digest, made_ms=made_ms, **row)
                    await conn.execute(put)
            except sa.exc.IntegrityError:
                continue  # another host was quicker

    async def count_jobs(self, state: State, most: int) -> int:
        """How many jobs the journal has in a state, counted up to `most`."""
        newer = messages.alias("newer")
        is_newer = same_job(newer, messages) & (newer.c.version > messages.c.version)
        some = (
            sa.select(messages.c.version)
            .where(messages.c.state == state)
            .where(sa.not_(sa.exists().where(is_newer, newer.c.state != State.REPLACED)))
            .limit(most)
            .subquery()
        )
        async with self._database.read() as conn:
            return await conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0


def token_digest(token: str) -> bytes:
    """What stands for a token in SQL. It is random and long: a plain hash can't be searched."""
    return sha256(token.encode(errors="surrogateescape")).digest()


def _cut(text: str, most_bytes: int) -> str:
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore")


def _read_cursor(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise Invalid([FieldError("cursor", "must be the cursor that the page before gave")])
    return int(cursor)
