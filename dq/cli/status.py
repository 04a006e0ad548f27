"""`dq status`: the processes on this data folder."""

from __future__ import annotations

from typing import Any

import click

from dq.cli.options import Failed, config_option, echo_json, json_option, load_chosen_settings
from dq.core.clock import now_ms
from dq.workers.lock import running_master
from dq.workers.procfs import memory_of
from dq.workers.status import read_status


@click.command()
@json_option
@config_option
def status(as_json: bool) -> None:
    """List the processes with pid, uptime, restarts and memory."""
    settings = load_chosen_settings()
    pid = running_master(settings.data_dir)
    told = read_status(settings.data_dir) if pid else {}
    processes = [_measure(process) for process in told.get("processes", [])]
    if as_json:
        echo_json({"running": bool(pid), "pid": pid or None, **told, "processes": processes})
    if not pid:
        raise Failed(f"dq does not run on {settings.data_dir}")
    if not as_json:
        _print(told, processes)


def _measure(process: dict[str, Any]) -> dict[str, Any]:
    return {
        **process,
        "uptime_s": round((now_ms() - process["started_ms"]) / 1000, 1),
        "memory_bytes": memory_of(process["pid"]),
    }


def _print(told: dict[str, Any], processes: list[dict[str, Any]]) -> None:
    addresses = "  ".join(f"{name} {address}" for name, address in told["addresses"].items())
    click.echo(f"dq {told['version']} is {told['state']}  {addresses}".rstrip())
    click.echo(f"{'name':18} {'pid':>8} {'uptime':>10} {'restarts':>8} {'memory':>8}  state")
    for process in processes:
        click.echo(
            f"{process['name']:18} {process['pid']:>8} {_span(process['uptime_s']):>10} "
            f"{process['restarts']:>8} {_megabytes(process['memory_bytes']):>8}  "
            f"{process['state']}"
        )
    if told["reload_error"]:
        click.echo(f"the last reload failed: {told['reload_error']}")


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02}:{minutes:02}" if days else f"{hours}:{minutes:02}:{rest:02}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MB"
