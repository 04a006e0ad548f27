"""Mails, to real mail servers that are kind, strict, rude or absent."""

from __future__ import annotations

import pytest

from dq.core.networks import DEFAULT_DENY
from dq.delivery.mail import Mailer, MailError
from tests.delivery.certificates import make_certificate
from tests.delivery.hostile import HostileServer, free_port
from tests.delivery.smtp_sink import RudeSmtp, SmtpSink

FROM = "dq@example.com"
TO = ["ops@example.com", "dev@example.com"]
GREETING = "220 rude.example ESMTP"
HELLO = "250 rude.example"
CERTIFICATE = make_certificate()


async def failure(mailer: Mailer) -> MailError:
    with pytest.raises(MailError) as caught:
        await mailer.send(TO, "subject", "text")
    return caught.value


async def test_a_mail_arrives_as_it_was_written() -> None:
    async with SmtpSink() as sink:
        text = "第一行\nsecond line — with ünïcode\n.\nafter a dot\n" + "x" * 3000 + "\n"
        await Mailer(sink.url(), FROM).send(TO, "订单 42: dead", text)
        (mail,) = sink.mails
        assert (mail.sender, mail.recipients) == (FROM, TO)
        assert mail.subject == "订单 42: dead"
        assert mail.text.replace("\r\n", "\n") == text
        assert mail.message["From"] == FROM
        assert mail.message["To"] == "ops@example.com, dev@example.com"
        assert mail.message["Auto-Submitted"] == "auto-generated"
        assert mail.message["Message-ID"].endswith("@example.com>")
        assert mail.message["Date"]
        assert mail.message.get_content_type() == "text/plain"


async def test_nothing_breaks_out_of_its_header() -> None:
    async with SmtpSink() as sink:
        subject = "dead\r\nBcc: thief@example.com\r\n\r\nbody\x00\x1b[31m\u202e\ud800"
        await Mailer(sink.url(), FROM).send(TO, subject, "\x00\x1b[31m\ud800\u2028\r\n.\r\nQUIT\n")
        (mail,) = sink.mails
        assert mail.subject == "dead Bcc: thief@example.com body??[31m??"
        assert mail.message["Bcc"] is None
        assert mail.recipients == TO
        assert mail.text.splitlines()[-2:] == [".", "QUIT"]


async def test_credentials_are_decoded() -> None:
    async with SmtpSink(login=("me@example.com", "p@ss:w/rd%")) as sink:
        mailer = Mailer(sink.url("me%40example.com:p%40ss%3Aw%2Frd%25@"), "")
        await mailer.send(TO, "subject", "text")
        assert sink.mails[0].sender == "me@example.com"
        wrong = await failure(Mailer(sink.url("me:no@"), FROM))
        assert "user name or password refused (535" in str(wrong)
        assert not wrong.is_final


@pytest.mark.parametrize("is_starttls", [True, False])
async def test_tls(is_starttls: bool) -> None:
    tls = CERTIFICATE.for_server()
    async with SmtpSink(tls=tls, is_starttls=is_starttls, login=("me", "secret")) as sink:
        url = sink.url("me:secret@")
        await Mailer(url, FROM, tls=CERTIFICATE.for_client()).send(TO, "subject", "text")
        assert len(sink.mails) == 1
        assert "TLS: self-signed certificate" in str(await failure(Mailer(url, FROM)))


async def test_a_secret_is_not_sent_in_the_clear_where_tls_was_asked_for() -> None:
    async with SmtpSink(login=("me", "secret")) as sink:
        url = sink.url("me:secret@").replace("smtp:", "smtp+starttls:")
        assert "STARTTLS" in str(await failure(Mailer(url, FROM)))
        assert sink.mails == []


async def test_some_addresses_refused_is_a_mail_to_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SmtpSink(refuses=(TO[0],)) as sink:
        await Mailer(sink.url(), FROM).send(TO, "subject", "text")
        assert sink.mails[0].recipients == TO[1:]
    assert TO[0] in caplog.text
    assert "nobody here" in caplog.text


async def test_all_addresses_refused_is_final() -> None:
    async with SmtpSink(refuses=tuple(TO)) as sink:
        error = await failure(Mailer(sink.url(), FROM))
        assert str(error).endswith("address ops@example.com refused (550 5.1.1 nobody here)")
        assert error.is_final


@pytest.mark.parametrize(
    ("answer", "is_final"), [("451 try later", False), ("554 no such thing", True)]
)
async def test_a_refused_text_says_whether_a_repeat_helps(answer: str, is_final: bool) -> None:
    async with SmtpSink(answer=answer) as sink:
        error = await failure(Mailer(sink.url(), FROM))
        assert str(error).endswith(f"mail refused ({answer})")
        assert error.is_final == is_final


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (GREETING,),
        (GREETING, HELLO),
        (GREETING, HELLO, "250 ok", "250 ok", "250 ok", "354 go on"),
    ],
)
async def test_a_server_that_hangs_is_left(lines: tuple[str, ...]) -> None:
    async with RudeSmtp(*lines) as rude:
        error = await failure(Mailer(rude.url(), FROM, timeout_s=0.3))
        assert str(error) == f"mail server 127.0.0.1:{rude.port}: timed out after 0.3 s"
        assert not error.is_final


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "connection closed before a greeting"),
        ((GREETING, HELLO), "connection closed in the middle"),
        (("554 SECRET banner", ""), "it is not ready for mail (code 554)"),
        (("SSH-2.0-SECRET", ""), "it speaks no SMTP"),
    ],
)
async def test_a_server_that_hangs_up(lines: tuple[str, ...], reason: str) -> None:
    async with RudeSmtp(*lines, is_closing=True) as rude:
        error = await failure(Mailer(rude.url(), FROM, timeout_s=2))
        assert str(error).endswith(f": {reason}")


@pytest.mark.parametrize("is_closing", [True, False])
async def test_a_mail_that_was_taken_is_no_failure_whatever_follows(is_closing: bool) -> None:
    conversation = (GREETING, HELLO, "250 ok", "250 ok", "250 ok", "354 go on", "250 kept")
    async with RudeSmtp(*conversation, is_closing=is_closing) as rude:
        await Mailer(rude.url(), FROM, timeout_s=5).send(TO, "subject", "text")
        assert rude.heard[4] == "DATA"


async def test_what_is_no_mail_server_is_not_quoted() -> None:
    async with HostileServer() as server:
        error = await failure(Mailer(f"smtp://127.0.0.1:{server.port}", FROM, timeout_s=0.3))
        assert "timed out" in str(error)


async def test_where_there_is_no_server() -> None:
    port = free_port()
    error = await failure(Mailer(f"smtp://127.0.0.1:{port}", FROM))
    assert str(error) == f"mail server 127.0.0.1:{port}: connect refused"
    error = await failure(Mailer("smtp://nobody.invalid", FROM))
    assert str(error) == "mail server nobody.invalid:25: DNS: no such host nobody.invalid"
    error = await failure(Mailer("smtps://[::ffff:169.254.169.254]", FROM, deny=DEFAULT_DENY))
    assert "address ::ffff:169.254.169.254 is denied" in str(error)


@pytest.mark.parametrize("url", ["http://host", "smtp://", "host:25", "smtp://host:99999", ""])
async def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Mailer(url, FROM)


async def test_an_address_that_is_none_is_a_final_error() -> None:
    async with SmtpSink() as sink:
        with pytest.raises(MailError) as caught:
            await Mailer(sink.url(), FROM).send(["a b@@example.com\r\nRCPT TO:<x>"], "s", "t")
        assert caught.value.is_final
        assert sink.mails == []
