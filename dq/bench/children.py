"""Processes of the bench beside dq: loads, the receiver, the bare applications.

They never outlive the bench: each dies with it, and is ended when its block is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dq.bench.errors import BenchFailed, last_words
from dq.core.clock import mono_ms
from dq.workers.signals import die_with_parent

_STOP_S = 20.0


def start(
    folder: Path,
    module: str,
    *words: str,
    output: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """`python -m MODULE WORDS` in `folder`; of dq's settings it has those of `environ` only.

    What it says on stderr, and on stdout unless `output` says otherwise, is added to `folder`'s
    file "output".
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DQ_")}
    parent = os.getpid()
    with (folder / "output").open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=folder,
            env={**inherited, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=file if output is None else output,
            stderr=file,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent),
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def listening(folder: Path, module: str, *words: str) -> Iterator[tuple[int, int]]:
    """A server as a child: its pid and the port that it prints as its first line."""
    process = start(folder, module, *words, output=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BenchFailed(f"{module} did not start:\n{last_words(folder)}")
        yield process.pid, int(line)
    finally:
        stop(process)


def answer_of(
    folder: Path, module: str, *words: str, told: Callable[[float], None] | None = None
) -> bytes:
    """What a child printed that does one thing and ends; `told` hears now and then for how many
    seconds it has been at it."""
    process = start(folder, module, *words, output=subprocess.PIPE)
    began_ms, printed = mono_ms(), None
    try:
        while printed is None:
            if told is not None:
                told((mono_ms() - began_ms) / 1000)
            with suppress(subprocess.TimeoutExpired):
                printed, _ = process.communicate(timeout=1.0)
    finally:
        stop(process)
    if process.returncode:
        raise BenchFailed(f"{module} failed:\n{last_words(folder)}")
    return printed
