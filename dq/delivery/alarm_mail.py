"""Mails about dq itself: to the addresses of the alerts page, beside the work of who raises them.

A mail that can't be sent is tried again for an hour, then it goes to the error log; without a mail
server it goes there at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.delivery.mail import MailError
from dq.delivery.post import Post

_log = logging.getLogger(__name__)

AGAIN_S = 10.0
GIVE_UP_MS = 3_600_000
KNOW_EACH_S = 60.0
"""So often the addresses are read anew, for the time when SQL is away too."""


@dataclass(frozen=True, slots=True)
class _Mail:
    subject: str
    text: str
    give_up_ms: float


class AlarmMail:
    """Sends what it is told, one after the other."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._waiting: deque[_Mail] = deque()
        self._has_mail = asyncio.Event()
        self._is_late_told = False

    def tell(self, subject: str, text: str) -> None:
        """Never waits."""
        self._waiting.append(_Mail(subject, text, clock.mono_ms() + GIVE_UP_MS))
        self._has_mail.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._waiting

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wait()
            while self._waiting:
                if await self._try(self._waiting[0]):
                    self._waiting.popleft()
                    self._is_late_told = False
                else:
                    await asyncio.sleep(AGAIN_S)

    async def _wait(self) -> None:
        while not self._waiting:
            self._has_mail.clear()
            try:
                await self._post.alarm_emails()
                await self._post.mailer()
            except DatabaseAway as error:
                _log.debug("who hears of alarms is as last known: %s", error.detail)
            try:
                async with asyncio.timeout(KNOW_EACH_S):
                    await self._has_mail.wait()
            except TimeoutError:
                continue

    async def _try(self, mail: _Mail) -> bool:
        """Whether this mail is dealt with."""
        try:
            await self._send(mail)
        except (MailError, DatabaseAway) as error:
            is_final = isinstance(error, MailError) and error.is_final
            if not is_final and clock.mono_ms() < mail.give_up_ms:
                if not self._is_late_told:
                    self._is_late_told = True
                    _log.error("an alarm mail waits: %s", error)
                return False
            _log.error("%s; given up: %s\n%s", error, mail.subject, mail.text)
        return True

    async def _send(self, mail: _Mail) -> None:
        emails = await self._post.alarm_emails()
        if not emails:
            return
        mailer = await self._post.mailer()
        if mailer is not None:
            await mailer.send(emails, mail.subject, mail.text)
            return
        _log.error(
            "no mail server; %s would have been told: %s\n%s",
            ", ".join(emails),
            mail.subject,
            mail.text,
        )
