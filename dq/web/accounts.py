"""Who may log in: `admin`, who may do everything, and `viewer`, who may look.

Hashes are kept in data/admin.json and not in SQL: when SQL is down is just when somebody has to
look. DQ_ADMIN_PASSWORD sets admin's password when it differs from what it was at the last start,
so a password changed on the page stands, and one that was forgotten is set anew by the setting.
A password itself is never kept and never logged.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from dq.web.kept import Kept
from dq.web.texts import Say

ADMIN, VIEWER = "admin", "viewer"
ROLES = (ADMIN, VIEWER)
"""Each account's name is also what it may do."""

SHORTEST, LONGEST = 8, 1024
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


class _Account(msgspec.Struct, frozen=True):
    """`stamp` changes with the password: sessions that began under another one end."""

    hash: str
    stamp: str


class _File(msgspec.Struct, frozen=True):
    accounts: dict[str, _Account] = {}
    given: str = ""
    """Hash of the DQ_ADMIN_PASSWORD that was last put in force."""


class Accounts:
    """The accounts of the data folder `folder`."""

    def __init__(self, folder: Path) -> None:
        self._kept = Kept(folder / "admin.json", _File)
        self._nobody = _HASHER.hash(secrets.token_hex())
        self._turn = asyncio.Semaphore(2)

    def prepare(self, given: str) -> str | None:
        """Put DQ_ADMIN_PASSWORD in force, or make a password at the first start.

        Gives the password that was made, to be shown once. Blocks for the hashing.
        """
        file = self._kept.read()
        if given and not _matches(file.given, given):
            self._kept.write(
                msgspec.structs.replace(_with(file, ADMIN, given), given=_HASHER.hash(given))
            )
        elif ADMIN not in file.accounts and not self._kept.is_broken:
            made = "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(4))
            self._kept.write(_with(file, ADMIN, made))
            return made
        return None

    @property
    def is_broken(self) -> bool:
        """Whether the file is there but can't be read: then nobody gets in."""
        self._kept.read()
        return self._kept.is_broken

    def stamp(self, user: str) -> str | None:
        """Of the user's present password; None when there is no such account."""
        account = self._kept.read().accounts.get(user)
        return None if account is None else account.stamp

    async def check(self, user: str, password: str) -> bool:
        """Whether they belong together; takes as long when there is no such account."""
        account = self._kept.read().accounts.get(user)
        known = self._nobody if account is None else account.hash
        async with self._turn:  # each takes 19 MiB for a moment
            matches = await asyncio.to_thread(_matches, known, password[:LONGEST])
        return matches and account is not None

    async def put(self, user: str, password: str) -> None:
        """Give an account a password, and thereby end its sessions."""
        async with self._turn:
            file = await asyncio.to_thread(_with, self._kept.read(), user, password)
        self._kept.write(file)

    def remove(self, user: str) -> bool:
        """Close an account; False when there is none."""
        file = self._kept.read()
        if user not in file.accounts:
            return False
        accounts = {name: one for name, one in file.accounts.items() if name != user}
        self._kept.write(msgspec.structs.replace(file, accounts=accounts))
        return True


def password_fault(password: str) -> Say | None:
    """What is wrong with a password that somebody chose."""
    if len(password) < SHORTEST:
        return Say("must have at least {n} characters", n=SHORTEST)
    if len(password) > LONGEST:
        return Say("must have at most {n} characters", n=LONGEST)
    return None


def _with(file: _File, user: str, password: str) -> _File:
    account = _Account(_HASHER.hash(password), secrets.token_hex(8))
    return msgspec.structs.replace(file, accounts={**file.accounts, user: account})


def _matches(known: str, password: str) -> bool:
    try:
        return _HASHER.verify(known, password.encode(errors="surrogateescape"))
    except (VerificationError, InvalidHashError):
        return False
