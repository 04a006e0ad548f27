"""Mails about dq itself: through which server, and again until one takes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dq.core.settings import load_settings
from dq.db.alarm_settings import MailServer, put_alarm_emails, put_mail_server
from dq.db.database import Database
from dq.db.migrate import migrate
from dq.db.repository import Repository
from dq.delivery import alarm_mail
from dq.delivery.alarm_mail import AlarmMail
from dq.delivery.post import Post
from tests.delivery.smtp_sink import SmtpSink
from tests.support import wait_until_async


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[Repository]:
    url = f"sqlite+aiosqlite:///{tmp_path}/dq.db"
    migrate(url)
    database = Database(url)
    await database.open()
    repository = Repository(database)
    await put_alarm_emails(repository, ["ops@example.com"])
    yield repository
    await database.close()


async def end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def alarms(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AlarmMail]:
    monkeypatch.setattr(alarm_mail, "AGAIN_S", 0.05)
    alarms = AlarmMail(Post(load_settings(None, {}), repository))
    running = asyncio.create_task(alarms.run())
    yield alarms
    await end(running)


async def test_a_mail_is_tried_again_until_it_goes(
    alarms: AlarmMail, repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    await put_mail_server(repository, MailServer("smtp://127.0.0.1:1"))
    alarms.tell("down", "one")
    alarms.tell("back", "two")
    await wait_until_async(lambda: "an alarm mail waits" in caplog.text)
    async with SmtpSink() as sink:
        await put_mail_server(repository, MailServer(sink.url(), "dq@example.com"))
        await wait_until_async(lambda: len(sink.mails) == 2)
        assert [mail.subject for mail in sink.mails] == ["down", "back"]
        assert sink.mails[0].recipients == ["ops@example.com"]
        assert sink.mails[0].sender == "dq@example.com"


async def test_it_is_given_up_after_its_time(
    alarms: AlarmMail,
    repository: Repository,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarm_mail, "GIVE_UP_MS", 100)
    await put_mail_server(repository, MailServer("smtp://127.0.0.1:1"))
    alarms.tell("down", "the text")
    await wait_until_async(lambda: "given up: down\nthe text" in caplog.text)


async def test_a_refused_mail_holds_up_no_other(
    alarms: AlarmMail, repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    async with SmtpSink(answer="550 no") as rude, SmtpSink() as kind:
        await put_mail_server(repository, MailServer(rude.url()))
        alarms.tell("first", "text")
        await wait_until_async(lambda: "given up: first" in caplog.text)
        await put_mail_server(repository, MailServer(kind.url()))
        alarms.tell("second", "text")
        await wait_until_async(lambda: [mail.subject for mail in kind.mails] == ["second"])


async def test_the_settings_win_over_what_was_saved(repository: Repository) -> None:
    async with SmtpSink() as sink:
        await put_mail_server(repository, MailServer("smtp://127.0.0.1:1"))
        alarms = AlarmMail(Post(load_settings(None, {"DQ_SMTP_URL": sink.url()}), repository))
        running = asyncio.create_task(alarms.run())
        alarms.tell("down", "text")
        await wait_until_async(lambda: len(sink.mails) == 1)
        await end(running)


async def test_without_a_server_it_is_logged_and_without_addresses_it_is_not(
    alarms: AlarmMail, repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    alarms.tell("first", "the text")
    await wait_until_async(lambda: "would have been told: first\nthe text" in caplog.text)
    await put_alarm_emails(repository, [])
    alarms.tell("second", "the text")
    await wait_until_async(lambda: alarms.is_idle)
    assert "second" not in caplog.text
