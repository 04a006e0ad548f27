"""`dq bench`: what this machine does with dq."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from dq.bench.plot import plot_of
from dq.bench.report import machine_line, report_of
from dq.bench.run import ALL_PARTS, PARTS, QUICK, WAITING, Plan, Result, measure
from dq.cli.options import Failed, echo_json, json_option
from dq.core.clock import mono_ms


class _Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers above 0, separated by commas."""

    name = "numbers"

    def convert(
        self, value: Any, _: click.Parameter | None, __: click.Context | None
    ) -> tuple[int, ...]:
        words = str(value).replace("_", "").split(",")
        if not all(word.strip().isdecimal() and int(word) for word in words):
            raise click.BadParameter(f"{value!r} is no list of numbers such as 200,2000")
        return tuple(int(word) for word in words)


class _Parts(click.ParamType[tuple[str, ...]]):
    name = "parts"

    def convert(
        self, value: Any, _: click.Parameter | None, __: click.Context | None
    ) -> tuple[str, ...]:
        words = tuple(word.strip() for word in str(value).split(","))
        unknown = [word for word in words if word not in ALL_PARTS]
        if unknown:
            raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(ALL_PARTS)}")
        return words


@click.command()
@click.option("--only", type=_Parts(), help=f"Some of {','.join(ALL_PARTS)}.")
@click.option("--quick", is_flag=True, help="Small numbers: shows that it works, proves nothing.")
@click.option("--rate", "rates", type=_Numbers(), help="Jobs a second for lateness: 200,2000.")
@click.option("--jobs", "memory_jobs", type=click.IntRange(1), help="Jobs for memory: 100000.")
@click.option("--waiting", "levels", type=_Numbers(), help="Cost at so many waiting: 1000,1000000.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw that into an SVG file."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where its folder is made: on the disk to be measured; without it the system's.",
)
@click.option("--keep", is_flag=True, help="Leave its folder there.")
@json_option
def bench(folder: Path | None, plot: Path | None, keep: bool, as_json: bool, **chosen: Any) -> None:
    """Measure this machine: pushes, callbacks, lateness, memory a job, what idling costs.

    A dq of its own with the default settings runs in a throw-away folder, beside a bare aiohttp
    that stores nothing. A few minutes on a machine that does nothing else.
    """
    plan = plan_of(**chosen)
    if plot is not None and WAITING not in plan.parts:
        raise click.UsageError("--plot draws what --waiting measures")
    with _folder(folder, keep, as_json) as own, _progress(as_json) as tell:
        result = measure(own, plan, tell)
    if plot is not None and result.waiting:
        plot.write_text(plot_of(result.waiting, machine_line(result.machine)), "utf-8")
    _show(result, as_json)
    if result.wrong:
        raise Failed("; ".join(result.wrong))


def plan_of(
    only: tuple[str, ...] | None,
    quick: bool,
    rates: tuple[int, ...] | None,
    memory_jobs: int | None,
    levels: tuple[int, ...] | None,
) -> Plan:
    """The usual plan, or the quick one, with what was chosen in its place."""
    parts = only or PARTS
    if levels and WAITING not in parts:
        parts = (*parts, WAITING)
    given = {"rates": rates, "memory_jobs": memory_jobs, "levels": levels, "parts": parts}
    fields = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(QUICK if quick else Plan(), **fields)


def _show(result: Result, as_json: bool) -> None:
    if as_json:
        echo_json(msgspec.to_builtins(result))
    else:
        click.echo(report_of(result))


@contextmanager
def _folder(parent: Path | None, is_kept: bool, is_silent: bool) -> Iterator[Path]:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: clean up and go
    folder = Path(tempfile.mkdtemp(prefix="dq-bench-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
        elif not is_silent:
            click.echo(f"left in {folder}", err=True)


@contextmanager
def _progress(is_silent: bool) -> Iterator[Callable[[str], None]]:
    """One line on a terminal, written over again and again, with the seconds so far."""
    is_shown = not is_silent and sys.stderr.isatty()
    began_ms = mono_ms()

    def tell(text: str) -> None:
        if is_shown:
            seconds = (mono_ms() - began_ms) / 1000
            click.echo(f"\r\x1b[K{seconds:5.0f} s  {text}", err=True, nl=False)

    try:
        yield tell
    finally:
        if is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)
