"""Who is logged in: random tokens in cookies, kept on this side as hashes in data/sessions.json.

In a file, so that a reload or SQL being down logs nobody out; of a stolen copy nothing can be made.
A session ends 12 h after it was last used, 7 days after its beginning, with its account's password
and with the log-out, whichever comes first.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from dq.web.kept import Kept

_log = logging.getLogger(__name__)

IDLE_MS = 12 * 3_600_000
LONGEST_MS = 7 * 86_400_000
_NOTE_EACH_MS = 15 * 60_000
_MOST = 1_000


class Session(msgspec.Struct, frozen=True):
    """`stamp` is that of the password it was opened with."""

    user: str
    stamp: str
    began_ms: int
    seen_ms: int
    address: str = ""

    def is_over(self, now_ms: int) -> bool:
        return now_ms - self.seen_ms > IDLE_MS or now_ms - self.began_ms > LONGEST_MS


class _File(msgspec.Struct, frozen=True):
    sessions: dict[str, Session] = {}


class Sessions:
    """`stamp_of(user)` is that of the present password, None without an account."""

    def __init__(
        self, folder: Path, stamp_of: Callable[[str], str | None], now_ms: Callable[[], int]
    ) -> None:
        self._kept = Kept(folder / "sessions.json", _File)
        self._stamp_of = stamp_of
        self._now_ms = now_ms

    def begin(self, user: str, address: str) -> str:
        """Log in; gives the token for the cookie."""
        token = secrets.token_urlsafe(32)
        now_ms = self._now_ms()
        session = Session(user, self._stamp_of(user) or "", now_ms, now_ms, address)
        self._put({**self._living(), _name_of(token): session})
        return token

    def find(self, token: str) -> Session | None:
        """The session that a token stands for, if it isn't over."""
        name = _name_of(token)
        session = self._kept.read().sessions.get(name)
        if session is None or not self._is_living(session):
            return None
        if self._now_ms() - session.seen_ms > _NOTE_EACH_MS:
            session = msgspec.structs.replace(session, seen_ms=self._now_ms())
            self._put({**self._living(), name: session})
        return session

    def end(self, token: str) -> None:
        """Log out."""
        left = self._living()
        left.pop(_name_of(token), None)
        self._put(left)

    def count(self, user: str) -> int:
        """How many sessions of a user there are."""
        return sum(session.user == user for session in self._living().values())

    def _living(self) -> dict[str, Session]:
        sessions = self._kept.read().sessions.items()
        living = [(name, one) for name, one in sessions if self._is_living(one)]
        living.sort(key=lambda pair: pair[1].seen_ms)
        return dict(living[-_MOST:])

    def _is_living(self, session: Session) -> bool:
        stamp = self._stamp_of(session.user)
        return stamp is not None and stamp == session.stamp and not session.is_over(self._now_ms())

    def _put(self, sessions: dict[str, Session]) -> None:
        try:
            self._kept.write(_File(sessions), sync=False)
        except OSError as error:  # a full disk is just when somebody has to get in
            _log.warning("sessions can't be written and end with this process: %s", error)
            self._kept.hold(_File(sessions))


def csrf_token(secret: str) -> str:
    """What every form of a visitor carries: only pages made for the cookie `secret` know it."""
    return hmac.new(secret.encode(), b"dq csrf", hashlib.sha256).hexdigest()


def is_csrf_token(secret: str, given: str) -> bool:
    return bool(secret) and hmac.compare_digest(csrf_token(secret).encode(), given.encode())


def _name_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
