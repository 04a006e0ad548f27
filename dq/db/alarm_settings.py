"""Who hears of alarms, and through which mail server: what the alerts page and `dq alarms` keep."""

from __future__ import annotations

import msgspec

from dq.core.errors import DatabaseAway
from dq.db.repository import Repository

EMAILS = "alarm_emails"
MAIL_SERVER = "mail_server"


class MailServer(msgspec.Struct, frozen=True):
    """`url` as DQ_SMTP_URL, `sender` as DQ_MAIL_FROM; kept as {"url", "from"}."""

    url: str
    sender: str = msgspec.field(default="", name="from")


class AlarmSettings(msgspec.Struct, frozen=True):
    """What is kept. No addresses: nobody is mailed."""

    emails: tuple[str, ...] = ()
    mail_server: MailServer | None = None


async def read_alarm_settings(repository: Repository) -> AlarmSettings:
    """Raises DatabaseAway, also before the schema has been made."""
    if not await repository.is_there():
        raise DatabaseAway("it does not answer, or has no tables yet")
    emails = await repository.get_setting(EMAILS) or ()
    server = await repository.get_setting(MAIL_SERVER)
    return msgspec.convert({"emails": emails, "mail_server": server}, AlarmSettings)


async def put_alarm_emails(repository: Repository, emails: list[str]) -> None:
    """Raises DatabaseAway."""
    await repository.put_setting(EMAILS, emails)


async def put_mail_server(repository: Repository, server: MailServer | None) -> None:
    """None: there is none any more. Raises DatabaseAway."""
    await repository.put_setting(MAIL_SERVER, msgspec.to_builtins(server))
