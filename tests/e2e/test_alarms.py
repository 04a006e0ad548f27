"""Redis goes down and comes back: who is mailed, when, and what the mail says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.delivery.smtp_sink import Mail, SmtpSink
from tests.e2e.background import in_background
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.e2e.test_restore import push_many
from tests.support import wait_until
from tests.valkey import Valkey


def alarms(dq: Program, *words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "dq", "alarms", *words, "--json"],
        cwd=dq.folder,
        env=dq.environ,
        capture_output=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def err_messages(dq: Program) -> str:
    return "\n".join(line["message"] for line in dq.lines("err"))


def check_mails(mails: list[Mail], node: str) -> None:
    assert [mail.recipients for mail in mails] == [["ops@example.com", "lin@example.com"]] * 2
    assert mails[0].subject == f"dq: Redis is down: {node}"
    assert mails[1].subject.startswith("dq: Redis is back after ")
    assert "300 jobs restored" in mails[1].subject
    seconds = int(mails[1].subject.split()[5])
    assert 5 <= seconds <= 20


@pytest.mark.time_limit(90)
def test_an_outage_is_mailed_twice_and_a_blip_not_at_all(tmp_path: Path) -> None:
    node = Valkey(tmp_path / "v")
    node.folder.mkdir()
    node.start()
    with (
        in_background(SmtpSink()) as smtp,
        Receiver() as receiver,
        Program(tmp_path, DQ_REDIS_URLS=node.url) as dq,
    ):
        assert alarms(dq) == {"emails": [], "mail_server": None, "from_settings": False}
        emails = ("--email", "ops@example.com", "--email", "lin@example.com")
        shown = alarms(dq, *emails, "--mail-server", smtp.url("u:secret@"))
        assert "secret" not in str(shown)
        alarms(dq, "--mail-server", smtp.url(), "--mail-from", "dq@example.com")
        dq.topic("t", callback=receiver.url, paused=True)
        push_many(dq, [{"topic": "t", "id": str(n), "body": n} for n in range(300)])

        node.kill()
        wait_until(lambda: "is down" in err_messages(dq))
        node.start()
        wait_until(lambda: "is back" in err_messages(dq))

        node.kill()
        began = time.monotonic()
        wait_until(lambda: len(smtp.mails) == 1, 15)
        assert time.monotonic() - began >= 5
        for part in (node.folder / "appendonlydir").iterdir():
            part.unlink()
        node.start()
        wait_until(lambda: len(smtp.mails) == 2, 15)
        check_mails(smtp.mails, node.url)
        dq.topic("t", callback=receiver.url)
        wait_until(lambda: len(receiver.ids()) == 300, 20)
        assert set(receiver.ids().values()) == {1}
    node.stop()


@pytest.mark.time_limit(90)
def test_without_a_mail_server_the_error_log_has_the_text(tmp_path: Path) -> None:
    node = Valkey(tmp_path / "v")
    node.folder.mkdir()
    node.start()
    with Program(tmp_path, DQ_REDIS_URLS=node.url) as dq:
        alarms(dq, "--email", "ops@example.com")
        node.kill()
        wanted = "ops@example.com would have been told: dq: Redis is down"
        wait_until(lambda: wanted in err_messages(dq), 15)
        assert alarms(dq, "--none")["emails"] == []
        node.start()
        wait_until(lambda: "is back" in err_messages(dq), 15)
    node.stop()
