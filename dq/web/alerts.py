"""The page about alerts: the mail server, who hears of what, what was sent, what went wrong.

A mail server's password is never shown, nor sent back to be kept: a form that leaves it empty keeps
the one that was saved, as long as it still is for the same user of the same server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from aiohttp import web

from dq.core.errors import DatabaseAway
from dq.core.mail_url import PORTS, MailPlace, hide_password, parse_mail_url
from dq.core.topic_fields import check_email
from dq.db.alarm_settings import (
    AlarmSettings,
    MailServer,
    put_alarm_emails,
    put_mail_server,
    read_alarm_settings,
)
from dq.delivery.mail import MailError
from dq.journal.last_lines import Line, last_lines
from dq.web.deps import Admin
from dq.web.forms import Form, Said, read_form, redirect
from dq.web.pages import Pages
from dq.web.refusals import Refusal
from dq.web.texts import Say
from dq.web.visitor import visitor_of

MAILS_SHOWN = 20
ERRORS_SHOWN = 30
_MOST_SAID_CHARS = 300


class MailLine(Line):
    """A mail, as mail_*.txt has it."""

    result: str
    to: list[str]
    subject: str
    server: str = ""
    detail: str = ""


class ErrorLine(Line):
    """What went wrong inside, as err_*.txt has it."""

    level: str
    process: str
    message: str
    exception: str = ""


@dataclass(frozen=True, slots=True)
class _Present:
    """The mail server in force. `url` without its password."""

    url: str
    sender: str
    is_given: bool
    place: MailPlace


class AlertsPage:
    """Handlers of /alerts. `problems` tells what is wrong now, as the overview does."""

    def __init__(
        self, admin: Admin, pages: Pages, problems: Callable[[], Awaitable[list[Say]]]
    ) -> None:
        self._admin = admin
        self._pages = pages
        self._problems = problems

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/alerts", self.show),
            web.post("/alerts/server", self.put_server),
            web.post("/alerts/server/remove", self.remove_server),
            web.post("/alerts/test", self.send_test),
            web.post("/alerts/emails", self.put_emails),
        ]

    async def show(self, request: web.Request) -> web.Response:
        return await self._page(request, Form({}))

    async def put_server(self, request: web.Request) -> web.Response:
        """Keep a mail server."""
        self._refuse_if_given()
        form = await read_form(request)
        kept = (await read_alarm_settings(self._admin.repository)).mail_server
        place = _read_place(form, kept)
        sender = form.text("from")
        if sender and _email_fault(sender):
            form.fault("from", Say("must look like dq@example.com"))
        if not form.faults:
            try:
                self._admin.post.open(place.url, sender)
            except ValueError as error:
                form.fault("host", str(error))
        if form.faults:
            return await self._page(request, form, 422)
        await put_mail_server(self._admin.repository, MailServer(place.url, sender))
        before, after = _shown(kept), hide_password(place.url)
        await self._admin.note(request, "alerts.server", "mail server", before=before, after=after)
        said = Said("The mail server is saved. Send a test mail to see whether it takes mails.")
        return redirect(request, "/alerts", said)

    async def remove_server(self, request: web.Request) -> web.Response:
        """Mails go to the error log from now on."""
        self._refuse_if_given()
        kept = (await read_alarm_settings(self._admin.repository)).mail_server
        await put_mail_server(self._admin.repository, None)
        await self._admin.note(request, "alerts.server", "mail server", before=_shown(kept))
        return redirect(request, "/alerts", Said("There is no mail server any more."))

    async def send_test(self, request: web.Request) -> web.Response:
        """One mail through the server in force; its answer, in words."""
        form = await read_form(request)
        to = form.text("to")
        if _email_fault(to):
            form.fault("to", Say("must look like ops@example.com"))
            return await self._page(request, form, 422)
        mailer = await self._admin.post.mailer()
        if mailer is None:
            raise Refusal(409, Say("There is no mail server yet."))
        words = visitor_of(request).words
        subject = words.t("dq on {host}: a test mail", host=self._admin.host)
        text = words.t("The mail server works: this mail came from dq's page Alerts.")
        try:
            await mailer.send([to], subject, text + "\n")
        except MailError as error:
            why = str(error)[:_MOST_SAID_CHARS]
            said = Said("No mail went to {to}: {why}", {"to": to, "why": why}, "bad")
        else:
            said = Said(
                "The mail server took the mail to {to}. Look whether it arrives.", {"to": to}
            )
        return redirect(request, "/alerts", said)

    async def put_emails(self, request: web.Request) -> web.Response:
        """Who hears of Redis going down and coming back."""
        form = await read_form(request)
        emails = form.text("emails").replace(",", "\n").split()
        if fault := _emails_fault(emails):
            form.fault("emails", fault)
            return await self._page(request, form, 422)
        before = (await read_alarm_settings(self._admin.repository)).emails
        await put_alarm_emails(self._admin.repository, emails)
        await self._admin.note(
            request, "alerts.emails", "alarms", before=", ".join(before), after=", ".join(emails)
        )
        nobody, those = Said("Alarms go to nobody now."), Said("Alarms go to those addresses now.")
        return redirect(request, "/alerts", those if emails else nobody)

    def _refuse_if_given(self) -> None:
        if self._admin.settings.smtp_url:
            raise Refusal(409, Say("DQ_SMTP_URL names the mail server; it wins over this page."))

    async def _page(self, request: web.Request, form: Form, status: int = 200) -> web.Response:
        kept, away = AlarmSettings(), ""
        try:
            kept = await read_alarm_settings(self._admin.repository)
        except DatabaseAway as error:
            away = error.detail
        folder = self._admin.settings.log_dir
        return await self._pages.show(
            request,
            "alerts.html",
            tab="alerts",
            status=status,
            form=form,
            is_server_wrong=bool(form.faults.keys() - {"to", "emails"}),
            away=away,
            kept=kept,
            present=self._present(kept),
            kinds=[(kind, f"{kind}:// ({port})") for kind, port in PORTS.items()],
            problems=await self._problems(),
            mails=await asyncio.to_thread(last_lines, folder, "mail", MailLine, MAILS_SHOWN),
            errors=await asyncio.to_thread(last_lines, folder, "err", ErrorLine, ERRORS_SHOWN),
            host=self._admin.host,
        )

    def _present(self, kept: AlarmSettings) -> _Present | None:
        settings = self._admin.settings
        server = kept.mail_server
        if settings.smtp_url:
            server = MailServer(settings.smtp_url, settings.mail_from)
        if server is None:
            return None
        try:
            place = parse_mail_url(server.url)
        except ValueError:
            place = MailPlace()
        return _Present(
            hide_password(server.url),
            server.sender,
            bool(settings.smtp_url),
            replace(place, password=""),
        )


def _shown(server: MailServer | None) -> str | None:
    return None if server is None else hide_password(server.url)


def _read_place(form: Form, kept: MailServer | None) -> MailPlace:
    """What the form says; faults go into it."""
    kind, host, user = form.text("kind"), form.text("host").strip("[]"), form.text("user")
    if kind not in PORTS:
        form.fault("kind", Say("must be one of these"))
    if not host or any(one.isspace() or one in "/@?#\\" for one in host):
        form.fault("host", Say("must be a host's name or address"))
    port = _read_port(form)
    password = form.raw("password")
    if not password and kept is not None:
        password = _same_login(MailPlace(kind, host, port, user), kept)
    if password and not user:
        form.fault("user", Say("is needed with a password"))
    return MailPlace(kind, host, port, user, password)


def _read_port(form: Form) -> int | None:
    text = form.text("port")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) < 65_536):
        form.fault("port", Say("must be a number from 1 to 65535"))
        return None
    return int(text)


def _same_login(place: MailPlace, kept: MailServer) -> str:
    """The kept password, if it is for this very user of this very server: another must not be
    sent it."""
    try:
        known = parse_mail_url(kept.url)
    except ValueError:
        return ""
    is_same = (place.host, place.port, place.user) == (known.host, known.port, known.user)
    return known.password if is_same else ""


def _email_fault(address: str) -> bool:
    return bool(_emails_fault([address]))


def _emails_fault(emails: list[str]) -> str:
    try:
        check_email(emails)
    except ValueError as error:
        return str(error)
    return ""
