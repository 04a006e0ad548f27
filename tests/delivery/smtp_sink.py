"""Mail servers for tests: one that keeps what it gets, and ones that misbehave.

async with SmtpSink() as sink:
    await Mailer(sink.url(), "dq@example.com").send(["ops@example.com"], "subject", "text")
    assert sink.mails[0].subject == "subject"
"""

from __future__ import annotations

import asyncio
import ssl
import warnings
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Self

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass(frozen=True)
class Mail:
    """One mail as it was taken."""

    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def subject(self) -> str:
        return str(self.message["Subject"])

    @property
    def text(self) -> str:
        return str(self.message.get_content())


class SmtpSink:
    """A mail server on loopback that keeps every mail in `mails`.

    `refuses` holds addresses answered 550, `answer` what it says to a text, `login` the only
    user and password it takes. `tls` makes it speak TLS: from the start, or with `is_starttls`
    after STARTTLS, which it then demands.
    """

    def __init__(
        self,
        *,
        refuses: tuple[str, ...] = (),
        answer: str = "250 kept",
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        is_starttls: bool = False,
    ) -> None:
        self.mails: list[Mail] = []
        self.port = 0
        self._refuses = refuses
        self._answer = answer
        self._login = login
        self._tls = tls
        self._is_starttls = is_starttls
        self._server: asyncio.Server | None = None
        self._sessions: list[SMTP] = []

    def url(self, user: str = "") -> str:
        """`user` is like `name:password@`."""
        secure = "smtp+starttls" if self._is_starttls else "smtps"
        return f"{secure if self._tls else 'smtp'}://{user}127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        tls = None if self._is_starttls else self._tls
        self._server = await loop.create_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for session in self._sessions:
            if session.transport is not None:
                session.transport.close()
        await asyncio.sleep(0)

    def _serve(self) -> SMTP:
        with warnings.catch_warnings():
            # It warns of passwords without TLS, which here never leave this machine.
            warnings.simplefilter("ignore", UserWarning)
            session = SMTP(
                self,
                hostname="sink.example",
                enable_SMTPUTF8=True,
                tls_context=self._tls if self._is_starttls else None,
                require_starttls=self._is_starttls,
                auth_required=self._login is not None,
                auth_require_tls=False,
                authenticator=self._authenticate,
            )
        self._sessions.append(session)
        return session

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        is_right = (data.login.decode(), data.password.decode()) == self._login
        return AuthResult(success=is_right, handled=False)

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """aiosmtpd's hook: an address was named."""
        if address in self._refuses:
            return "550 5.1.1 nobody here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """aiosmtpd's hook: a text has come."""
        if self._answer.startswith("2"):
            content = envelope.content
            assert isinstance(content, bytes)
            message = message_from_bytes(content, policy=policy.default)
            assert isinstance(message, EmailMessage)
            sender = str(envelope.mail_from)
            self.mails.append(Mail(sender, [str(to) for to in envelope.rcpt_tos], message))
        return self._answer


class RudeSmtp:
    """Says its `lines` to whoever connects, one to each line it hears, the first at once.

    After the last one it hangs, or hangs up with `is_closing`. Without lines it just hangs.
    """

    def __init__(self, *lines: str, is_closing: bool = False) -> None:
        self.heard: list[str] = []
        self.port = 0
        self._lines = lines
        self._is_closing = is_closing
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            for line in self._lines:
                writer.write(line.encode() + b"\r\n")
                await writer.drain()
                self.heard.append((await reader.readline()).decode().strip())
            if not self._is_closing:
                await asyncio.Event().wait()
        except (OSError, asyncio.CancelledError):
            pass  # the mailer left, or the test is over
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
