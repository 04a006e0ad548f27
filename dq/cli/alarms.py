"""`dq alarms`: who hears of Redis going down and coming back, and through which mail server."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from dq.cli.options import config_option, echo_json, json_option, load_chosen_settings
from dq.core.mail_url import hide_password
from dq.core.settings import Settings
from dq.core.topic_fields import check_email


@click.command()
@click.option("--email", "emails", multiple=True, help="Who hears of alarms. Repeatable.")
@click.option("--none", "is_none", is_flag=True, help="Nobody does.")
@click.option("--mail-server", help="As DQ_SMTP_URL, which wins over it; empty: none.")
@click.option("--mail-from", help="Sender of the mails through it.")
@json_option
@config_option
def alarms(
    emails: tuple[str, ...],
    is_none: bool,
    mail_server: str | None,
    mail_from: str | None,
    as_json: bool,
) -> None:
    """Show who hears of alarms, or set it; without options nothing is changed."""
    if emails and is_none:
        raise click.UsageError("--email and --none exclude each other")
    if mail_from is not None and not mail_server:
        raise click.UsageError("--mail-from needs --mail-server")
    wanted = list(emails) if emails or is_none else None
    _check(wanted or [], mail_server)
    settings = load_chosen_settings()
    shown = asyncio.run(_keep(settings, wanted, mail_server, mail_from or ""))
    if as_json:
        echo_json(shown)
        return
    click.echo(f"alarms go to    {', '.join(shown['emails']) or 'nobody'}")
    server = shown["mail_server"]
    place = f"{server['url']} from {server['from'] or 'dq'}" if server else "none: to the error log"
    click.echo(f"through         {place}{' (DQ_SMTP_URL)' if shown['from_settings'] else ''}")


def _check(emails: list[str], mail_server: str | None) -> None:
    try:
        check_email(emails)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--email") from None
    if mail_server:
        from dq.delivery.mail import Mailer  # for this option only

        try:
            Mailer(mail_server, "")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--mail-server") from None


async def _keep(
    settings: Settings, emails: list[str] | None, mail_server: str | None, mail_from: str
) -> dict[str, Any]:
    """Write what is wanted, and read what is in force. Raises DatabaseAway."""
    from dq.db.alarm_settings import (  # SQLAlchemy, for this command only
        MailServer,
        put_alarm_emails,
        put_mail_server,
        read_alarm_settings,
    )
    from dq.db.database import Database
    from dq.db.repository import Repository

    database = Database(settings.database_url)
    await database.open()
    try:
        repository = Repository(database)
        if emails is not None:
            await put_alarm_emails(repository, emails)
        if mail_server is not None:
            await put_mail_server(
                repository, MailServer(mail_server, mail_from) if mail_server else None
            )
        kept = await read_alarm_settings(repository)
    finally:
        await database.close()
    server = kept.mail_server
    if settings.smtp_url:
        server = MailServer(settings.smtp_url, settings.mail_from)
    return {
        "emails": list(kept.emails),
        "mail_server": server and {"url": hide_password(server.url), "from": server.sender},
        "from_settings": bool(settings.smtp_url),
    }
