"""The admin in the whole program: its password is shown once, and a reload logs nobody out."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.program import Program
from tests.support import wait_until
from tests.web.browser import Browser


def reloads(folder: Path) -> int:
    status = json.loads((folder / "data" / "status.json").read_text())
    return int(status["reloads"]) if status["state"] == "running" else 0


@pytest.mark.time_limit(120)
async def test_the_password_is_shown_at_the_first_start_only(tmp_path: Path) -> None:
    with Program(tmp_path, DQ_CONSUMERS="1") as program:
        base = f"http://127.0.0.1:{program.environ['DQ_ADMIN_PORT']}"

        def find() -> list[str]:
            return re.findall(r"user admin, password (\S+)", program.output.read_text())

        shown = wait_until(find, 20, "the password")
        assert len(shown) == 1
        browser = Browser(base)
        assert (await browser.log_in(password=shown[0])).status == 303
        await browser.see("/", "dq-master", "dq-server-0", "dq-admin", "dq-journal", "embedded")
        assert program.process is not None
        program.process.send_signal(signal.SIGHUP)
        wait_until(lambda: reloads(tmp_path) == 1, 60, "the reload")
        again = Browser(
            base, Cookie=f"dq_session_{base.rpartition(':')[2]}={browser.cookie('dq_session')}"
        )
        assert (await again.get("/access")).status == 200
        await browser.close()
        await again.close()
    with Program(tmp_path, DQ_CONSUMERS="1", DQ_ADMIN_PASSWORD="set by hand"):
        pass
    assert program.output.read_text().count("user admin, password") == 1
    for path in (tmp_path / "logs").iterdir():
        assert shown[0] not in path.read_text(), path
