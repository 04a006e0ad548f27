"""Which mail server mails go through now: DQ_SMTP_URL, else the one that was saved, else none."""

from __future__ import annotations

import logging

from dq.core.errors import DatabaseAway
from dq.core.settings import Settings
from dq.db.alarm_settings import AlarmSettings, MailServer, read_alarm_settings
from dq.db.repository import Repository
from dq.delivery.mail import Mailer
from dq.delivery.mail_log import MailLog

_log = logging.getLogger(__name__)


class Post:
    """What was saved is read again at each use; while SQL is away the last known counts."""

    def __init__(self, settings: Settings, repository: Repository) -> None:
        self._settings = settings
        self._repository = repository
        self._saved: AlarmSettings | None = None
        self._made: tuple[MailServer, Mailer | None] | None = None
        self._mail_log = MailLog(settings.log_dir)

    async def alarm_emails(self) -> tuple[str, ...]:
        """Who hears of alarms. Raises DatabaseAway when that was never known."""
        return (await self._read()).emails

    async def mailer(self) -> Mailer | None:
        """None: there is no mail server. Raises DatabaseAway when that was never known."""
        if self._settings.smtp_url:
            return self._make(MailServer(self._settings.smtp_url, self._settings.mail_from))
        saved = (await self._read()).mail_server
        return None if saved is None else self._make(saved)

    async def _read(self) -> AlarmSettings:
        try:
            self._saved = await read_alarm_settings(self._repository)
        except DatabaseAway:
            if self._saved is None:
                raise
        return self._saved

    def _make(self, server: MailServer) -> Mailer | None:
        if self._made is None or self._made[0] != server:
            self._made = (server, self._open(server))
        return self._made[1]

    def open(self, url: str, sender: str) -> Mailer:
        """A mailer through any server. Raises ValueError, in words."""
        deny = self._settings.callback_deny
        return Mailer(url, sender, deny=deny, told=self._mail_log.add)

    def _open(self, server: MailServer) -> Mailer | None:
        sender = server.sender or self._settings.mail_from
        try:
            return self.open(server.url, sender)
        except ValueError as error:
            _log.error("the saved mail server can't be used: %s", error)
            return None
