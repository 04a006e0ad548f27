"""A command of dq, run as a shell runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Done:
    """A command that has ended."""

    def __init__(self, folder: Path, *words: str, stdin: str = "", **environ: str) -> None:
        inherited = {name: v for name, v in os.environ.items() if not name.startswith("DQ_")}
        done = subprocess.run(
            [sys.executable, "-m", "dq", *words],
            cwd=folder,
            env={**inherited, "PYTHONPATH": str(ROOT), **environ},
            input=stdin,
            capture_output=True,
            text=True,
        )
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        assert "Traceback" not in self.err
