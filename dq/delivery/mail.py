"""One mail, out through the operator's mail server.

It is given up after a time whatever the server does, and it either went or it raises: once the
server has taken the text, a connection that then breaks is no reason to send it twice. A server
that isn't a mail server learns nothing and tells nothing: its words are shown only after it has
spoken SMTP, and it is never looked for on a denied address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid

import aiosmtplib
from aiosmtplib import SMTP

from dq.core import clock
from dq.core.errors import DqError
from dq.core.mail_url import PORTS, parse_mail_url
from dq.core.networks import DenyList
from dq.delivery.reasons import AddressDenied, clean, explain_dns, explain_os, explain_tls
from dq.delivery.resolve import Resolver

_log = logging.getLogger(__name__)

TIMEOUT_S = 20.0
_GOODBYE_S = 1.0
Told = Callable[[str, Sequence[str], str, str], None]
"""Hears of each mail: server, addresses, subject, and why it did not go or ""."""


class MailError(DqError):
    """A mail didn't go. `is_final`: the server refused it for good, a repeat will not help."""

    def __init__(self, sentence: str, is_final: bool = False) -> None:
        self.is_final = is_final
        super().__init__(sentence)


class Mailer:
    """Sends mails through one server, a connection each.

    `smtp_url` is `smtp://`, `smtps://` or `smtp+starttls://user:password@host:port`, user and
    password %-encoded. `mail_from` is the sender; without one it is the URL's user, if that is
    an address, or dq at this machine. `deny` holds networks never connected to. A mail may take
    `timeout_s`. `tls` says whom to trust (default: the system's authorities). `told` hears of each
    mail. Raises ValueError, in words, for a URL it can't use.
    """

    def __init__(
        self,
        smtp_url: str,
        mail_from: str,
        *,
        deny: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        told: Told | None = None,
    ) -> None:
        place = parse_mail_url(smtp_url)
        self._scheme = place.kind
        self._host = place.host
        self._port = place.port or PORTS[place.kind]
        self._user = place.user or None
        self._password = place.password or None
        self._told = told
        self._from = clean(mail_from) or _default_from(self._user)
        self._deny = DenyList(deny)
        self._resolver = Resolver()
        self._timeout_s = timeout_s
        self._tls = tls

    async def send(self, to: Sequence[str], subject: str, text: str) -> None:
        """Send one plain text mail to all of `to`. Raises MailError with the reason in a sentence.

        When some of the addresses are refused the others have it, and the log says so.
        """
        try:
            await self._send(to, subject, text)
        except MailError as error:
            self._tell(to, subject, str(error))
            raise
        self._tell(to, subject, "")

    def _tell(self, to: Sequence[str], subject: str, trouble: str) -> None:
        if self._told is not None:
            self._told(f"{self._host}:{self._port}", to, subject, trouble)

    async def _send(self, to: Sequence[str], subject: str, text: str) -> None:
        recipients = [clean(address) for address in to]
        try:
            message = _compose(self._from, recipients, subject, text)
            async with asyncio.timeout(self._timeout_s):
                refused = await self._deliver(message, recipients)
        except TimeoutError:
            raise self._error(f"timed out after {self._timeout_s:g} s") from None
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise self._error(_explain(error, self._host), _is_final(error)) from error
        for address, answer in refused.items():
            _log.warning("no mail to %s: the mail server said %s", address, clean(str(answer)))

    def _error(self, reason: str, is_final: bool = False) -> MailError:
        return MailError(f"mail server {self._host}:{self._port}: {reason}", is_final)

    async def _deliver(
        self, message: EmailMessage, recipients: list[str]
    ) -> dict[str, aiosmtplib.SMTPResponse]:
        """Which addresses were refused, and how, when not all of them were."""
        connection = await self._connect()
        client = SMTP(
            hostname=self._host,
            sock=connection,
            username=self._user,
            password=self._password,
            local_hostname=socket.gethostname() or "localhost",
            timeout=None,  # ours bounds it all; asyncio.wait_for in theirs loses cancellations
            use_tls=self._scheme == "smtps",
            start_tls=self._scheme == "smtp+starttls",
            tls_context=self._tls,
        )
        try:
            await client.connect()
            refused, _ = await client.send_message(message, recipients=recipients)
            # The mail is gone: whatever comes now, it must not be sent again.
            with contextlib.suppress(aiosmtplib.SMTPException, OSError):
                async with asyncio.timeout(_GOODBYE_S):
                    await client.quit()
            return refused
        finally:
            client.close()
            connection.close()

    async def _connect(self) -> socket.socket:
        """A socket connected to the first address that takes it. Raises OSError."""
        loop = asyncio.get_running_loop()
        failure: OSError = OSError(f"no address of {self._host}")
        for found in await self._resolver.resolve(self._host):
            ip = found["host"]
            if self._deny.denies(ip):
                failure = AddressDenied(ip)
                continue
            connection = socket.socket(found["family"])
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, (ip, self._port))
            except OSError as error:
                connection.close()
                failure = error
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise failure


def _default_from(user: str | None) -> str:
    return clean(user) if user and "@" in user else f"dq@{socket.gethostname() or 'localhost'}"


def _compose(sender: str, recipients: list[str], subject: str, text: str) -> EmailMessage:
    """The mail; what subject and text hold can't add a header or end the text early."""
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Subject"] = clean(subject)
    message["Date"] = format_datetime(datetime.fromtimestamp(clock.now_ms() // 1000, UTC))
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2].rstrip(">") or None)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_clean_text(text), charset="utf-8")
    return message


def _clean_text(text: str) -> str:
    """`text` without control characters, lone surrogates among them, its lines kept."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ")
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cs") else "?" for c in lines
    )


def _explain(error: Exception, host: str) -> str:
    if isinstance(error, aiosmtplib.SMTPResponseException) and error.code < 0:
        return "it speaks no SMTP"
    if isinstance(error, aiosmtplib.SMTPAuthenticationError):
        return f"user name or password refused ({_answer(error)})"
    if isinstance(error, aiosmtplib.SMTPConnectResponseError | aiosmtplib.SMTPHeloError):
        return f"it is not ready for mail (code {error.code})"
    if isinstance(error, aiosmtplib.SMTPSenderRefused):
        return f"sender {clean(error.sender)} refused ({_answer(error)})"
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        first = error.recipients[0]
        return f"address {clean(first.recipient)} refused ({_answer(first)})"
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return f"mail refused ({_answer(error)})"
    return _explain_connection(error, host)


def _explain_connection(error: Exception, host: str) -> str:
    """aiosmtplib wraps what the socket and TLS said."""
    cause = error.__cause__ if isinstance(error, aiosmtplib.SMTPException) else error
    if isinstance(cause, ssl.SSLError):
        return clean(explain_tls(cause))
    if isinstance(cause, socket.gaierror):
        return clean(explain_dns(cause, host))
    if isinstance(error, aiosmtplib.SMTPServerDisconnected):
        return "connection closed in the middle"
    if isinstance(cause, aiosmtplib.SMTPServerDisconnected):
        return "connection closed before a greeting"
    if isinstance(cause, OSError):
        return clean(explain_os(cause))
    return clean(str(error))


def _answer(error: aiosmtplib.SMTPResponseException) -> str:
    return clean(f"{error.code} {error.message}")


def _is_final(error: Exception) -> bool:
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return all(refused.code >= 500 for refused in error.recipients)
    if isinstance(error, aiosmtplib.SMTPSenderRefused | aiosmtplib.SMTPDataError):
        return error.code >= 500
    return isinstance(error, ValueError)
