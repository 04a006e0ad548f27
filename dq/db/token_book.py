"""The API tokens made in the admin, as every process sees them: in memory, from a file, so that SQL
may be away.

SQL is the truth. The hashes of the tokens that open are copied into one file (data/tokens.json)
by the admin at each change, and by one process a host that compares once a second, which brings in
what other hosts changed; the servers see that the file changed and read it again. The tokens
themselves are nowhere.

A door must never open by accident: a file that can't be read lets nobody in, and a database that
was made anew gets the file's tokens instead of emptying the file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from dq.core.errors import DatabaseAway
from dq.core.files import write_atomically
from dq.db.admin_store import AdminStore

log = logging.getLogger(__name__)

USED_EACH_MS = 60_000
"""So often, at most, the last use of a token is written."""


class _File(msgspec.Struct):
    """`tokens`: hash in hexadecimal -> the token's number."""

    tokens: dict[str, int] = {}
    revoked: list[str] = []


class TokenBook:
    """`store` None makes a book that only follows the file. `changed` is told of each change."""

    def __init__(self, path: Path, store: AdminStore | None) -> None:
        self._path = path
        self._store = store
        self._digests: dict[bytes, int] = {}
        self._revoked: frozenset[bytes] = frozenset()
        self._seen: tuple[int, int, int] | None = None
        self._is_broken = False
        self._used: set[int] = set()
        self._written_ms: dict[int, int] = {}
        self.changed: list[Callable[[], None]] = []
        self.refresh()

    @property
    def is_wanted(self) -> bool:
        """Whether callers need a token, as there are some."""
        return self._is_broken or bool(self._digests)

    def opens(self, digest: bytes) -> bool:
        """Whether the token of this hash is one that opens; then it has been used."""
        no = self._digests.get(digest)
        if no is not None:
            self._used.add(no)
        return no is not None

    def is_revoked(self, digest: bytes) -> bool:
        """Whether this token was one once: it is refused even where none is needed."""
        return digest in self._revoked

    def refresh(self) -> bool:
        """Read the file again if it changed; True when it did. Costs one stat when not."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return False  # what was known stays
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            file = msgspec.json.decode(self._path.read_bytes(), type=_File)
            self._digests = {bytes.fromhex(digest): no for digest, no in file.tokens.items()}
            self._revoked = frozenset(map(bytes.fromhex, file.revoked))
            self._is_broken = False
        except (OSError, msgspec.DecodeError, ValueError) as error:
            log.error(
                "%s can't be read, nobody gets in before it is made anew: %s", self._path, error
            )
            self._digests, self._is_broken = {}, True
        for tell in self.changed:
            tell()
        return True

    async def sync(self) -> None:
        """Bring the file to what SQL has. Raises DatabaseAway."""
        store = self._truth()
        self.refresh()
        known = await store.valid_digests()
        if not known and self._digests and not await store.tokens():
            log.warning("the database has no tokens; it gets the %d known", len(self._digests))
            await store.put_digests(list(self._digests))
            known = await store.valid_digests()
        revoked = await store.revoked_digests()
        if (known, revoked) != (self._digests, self._revoked) or self._is_broken:
            tokens = {one.hex(): no for one, no in known.items()}
            text = msgspec.json.encode(_File(tokens, sorted(one.hex() for one in revoked)))
            await asyncio.to_thread(write_atomically, self._path, text)
            self.refresh()

    async def note_used(self, now_ms: int) -> None:
        """Write which tokens were used since the last time; each at most once a minute. Raises
        DatabaseAway, and then they are written the next time."""
        store = self._truth()
        for no in sorted(self._used):
            if now_ms - self._written_ms.get(no, 0) >= USED_EACH_MS:
                await store.note_used(no, now_ms)
                self._written_ms[no] = now_ms
                self._used.discard(no)

    def _truth(self) -> AdminStore:
        if self._store is None:
            raise DatabaseAway("this process has no connection to it")
        return self._store
