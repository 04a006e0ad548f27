"""mail_YYYYMMDD.txt below DQ_LOG_DIR: each mail that dq sent or tried to, a line of JSON each.

For people and for the alerts page, never for recovery: a full disk costs the line, nothing else.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from dq.core.clock import day_stamp, now_ms, rfc3339

_log = logging.getLogger(__name__)


class MailLog:
    """The mails of one process; several processes write to the same file."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir

    def add(self, server: str, to: Sequence[str], subject: str, trouble: str) -> None:
        """A mail through `server`. `trouble`: why it did not go, "" when it went."""
        at_ms = now_ms()
        result = "refused" if trouble else "sent"
        line = {"t": rfc3339(at_ms), "result": result, "to": list(to), "subject": subject}
        text = json.dumps({**line, "server": server, "detail": trouble}, ensure_ascii=False)
        path = self._log_dir / f"mail_{day_stamp(at_ms)}.txt"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            try:
                os.write(file, (text + "\n").encode("utf-8", "backslashreplace"))
            finally:
                os.close(file)
        except OSError as error:
            _log.warning("%s can't be written: %s", path, error)
