"""`dq start`: everything, in the foreground."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import click

from dq import __version__
from dq.cli.options import config_option, load_chosen_settings
from dq.core.settings import SETTINGS, Settings
from dq.workers.master import Master


class _StartCommand(click.Command):
    """Its help ends with the table of settings."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Settings (in the environment; in dq.toml without DQ_, lower case)"):
            formatter.write_dl([(row.variable, row.sentence) for row in SETTINGS])


@click.command(cls=_StartCommand)
@config_option
def start() -> None:
    """Run everything in the foreground, until TERM or Ctrl-C.

    With no configuration it brings its own Valkey and SQLite, both below data/. HUP reads the
    settings again and replaces the processes; TTIN and TTOU add and remove a consumer.
    """
    Master(load_chosen_settings, announce=announce).run()


def announce(settings: Settings, addresses: Mapping[str, str]) -> None:
    """Say where everything is, once it is there."""
    lines = [
        f"dq {__version__} runs; Ctrl-C stops it.",
        f"  API    http://{addresses['api']}",
        f"  admin  http://{addresses['admin']}",
    ]
    if "tcp" in addresses:
        lines.append(f"  php-delayqueue's protocol  {addresses['tcp']}")
    with contextlib.suppress(OSError):  # nobody reads along: that is no reason to end
        click.echo("\n".join(lines))
