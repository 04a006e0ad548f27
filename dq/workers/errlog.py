"""What went wrong inside, for people: err_YYYYMMDD.txt, one JSON object a line.

Several processes write to the same file: each line is one append of one write, so lines never
mix. It must never stop the process it reports about: a full disk costs the line, nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from dq.core.clock import day_stamp, rfc3339


class ErrorFile(logging.Handler):
    """Appends records to the day's file, which is opened anew for each: errors are rare."""

    def __init__(self, log_dir: Path, process: str) -> None:
        super().__init__(logging.WARNING)
        self._log_dir = log_dir
        self._process = process

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._append(record)
        except Exception:
            self.handleError(record)  # tells stderr, if there is one

    def _append(self, record: logging.LogRecord) -> None:
        at_ms = int(record.created * 1000)
        line = {
            "t": rfc3339(at_ms),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        if exception := self._exception_of(record):
            line["exception"] = exception
        path = self._log_dir / f"err_{day_stamp(at_ms)}.txt"
        text = json.dumps(line, ensure_ascii=False) + "\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            os.write(file, text.encode("utf-8", "backslashreplace"))
        finally:
            os.close(file)

    @staticmethod
    def _exception_of(record: logging.LogRecord) -> str:
        if record.exc_info and record.exc_info[0] is not None:
            return logging.Formatter().formatException(record.exc_info)
        return str(getattr(record, "stack", "") or record.stack_info or "")


def log_errors_to(log_dir: Path, process: str) -> None:
    """Send this process's warnings and errors to the day's file, and a line each to stderr."""
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(logging.Formatter(f"{process}: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [ErrorFile(log_dir, process), terminal]
