"""`dq stop` and `dq reload`: signals to the running master, and waiting for what they ask."""

from __future__ import annotations

import os
import signal
import time

import click

from dq.cli.options import Failed, config_option, load_chosen_settings
from dq.core.clock import mono_ms
from dq.core.settings import Settings
from dq.workers.lock import running_master
from dq.workers.status import read_status

_LOOK_S = 0.05


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=640.0,
    show_default=True,
    help="Seconds to wait; running callbacks may take up to their topic's timeout.",
)
@config_option
def stop(timeout: float) -> None:
    """Stop gracefully: no new callbacks, running ones finish."""
    settings = load_chosen_settings()
    pid = _running_pid(settings)
    os.kill(pid, signal.SIGTERM)
    deadline_ms = mono_ms() + timeout * 1000
    while running_master(settings.data_dir) == pid:
        if mono_ms() > deadline_ms:
            raise Failed(f"dq (pid {pid}) was told to stop and still finishes its callbacks")
        time.sleep(_LOOK_S)
    click.echo("stopped")


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the new processes.",
)
@config_option
def reload(timeout: float) -> None:
    """Read the settings again and replace the processes; no connection is refused."""
    settings = load_chosen_settings()
    pid = _running_pid(settings)
    before = read_status(settings.data_dir).get("reloads", 0)
    os.kill(pid, signal.SIGHUP)
    deadline_ms = mono_ms() + timeout * 1000
    while not _is_reloaded(settings, before):
        if mono_ms() > deadline_ms:
            raise Failed("the new processes have not all started; `dq status` shows them")
        time.sleep(_LOOK_S)
    click.echo("reloaded")


def _running_pid(settings: Settings) -> int:
    pid = running_master(settings.data_dir)
    if not pid:
        raise Failed(f"dq does not run on {settings.data_dir}")
    return pid


def _is_reloaded(settings: Settings, before: int) -> bool:
    """Old ones may still finish their callbacks: new ones must have started."""
    if not running_master(settings.data_dir):
        raise Failed("dq has ended; its error log says why")
    status = read_status(settings.data_dir)
    if status.get("reloads", 0) <= before:
        return False
    if status["reload_error"]:
        raise Failed(f"not reloaded: {status['reload_error']}")
    return all(process["state"] != "starting" for process in status["processes"][1:])
