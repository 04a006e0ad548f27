"""The command line. Each command is a file of its own, imported when it is called.

Results go to stdout, everything else to stderr; the exit code is 0 only when the command did
what was asked. A person sees a sentence, never a traceback, for whatever can go wrong.
"""

from __future__ import annotations

import importlib
import sys

import click

from dq import __version__
from dq.cli.options import config_option
from dq.client import ApiError, Unreachable
from dq.core.errors import DqError

# Name -> module and function; the order is that of `dq --help`.
COMMANDS = {
    "start": "dq.cli.start:start",
    "stop": "dq.cli.control:stop",
    "reload": "dq.cli.control:reload",
    "status": "dq.cli.status:status",
    "demo": "dq.cli.demo:demo",
    "push": "dq.cli.jobs:push",
    "get": "dq.cli.jobs:get",
    "cancel": "dq.cli.jobs:cancel",
    "topic": "dq.cli.topics:topic",
    "dead": "dq.cli.dead:dead",
    "replay": "dq.cli.replay:replay",
    "restore": "dq.cli.restore:restore",
    "alarms": "dq.cli.alarms:alarms",
    "settings": "dq.cli.settings:settings",
    "bench": "dq.cli.bench:bench",
    "migrate": "dq.cli.migrate:migrate",
}


class Commands(click.Group):
    """A group whose commands are found in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(module), function)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="dq %(version)s")
@config_option
def dq() -> None:
    """dq calls you back on time: a delayed queue of HTTP callbacks.

    Settings come from dq.toml and from DQ_ variables; `dq settings` shows them.
    """


def main() -> None:
    """The console script."""
    try:
        code = dq.main(prog_name="dq", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    except (ApiError, DqError, Unreachable) as error:
        _tell(error)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _tell(error: Exception) -> None:
    click.echo(f"dq: {error}", err=True)
    for field in error.errors if isinstance(error, ApiError) else ():
        click.echo(f"  {field['field'] or 'the document'}: {field['message']}", err=True)
    if isinstance(error, Unreachable):
        click.echo("  `dq start` starts it; if it runs elsewhere, --url says where", err=True)
