"""What several commands take: --config, --json, and the API they talk to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dq.client import Client
from dq.core.errors import DqError
from dq.core.settings import Settings, load_settings
from dq.workers.status import read_status

F = TypeVar("F", bound=Callable[..., Any])


def _remember_config(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.find_root().meta["dq.config"] = value.absolute()


config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    expose_value=False,
    is_eager=True,
    callback=_remember_config,
    help="Settings file; without it ./dq.toml, if there is one.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")


def load_chosen_settings() -> Settings:
    """The settings of this command; raises SettingsError."""
    config = click.get_current_context().find_root().meta.get("dq.config")
    return load_settings(config, os.environ)


class Failed(DqError):
    """A command did not do what was asked; the text says why."""


def _remember_token(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.meta["dq.token"] = value


def _connect(ctx: click.Context, _: click.Parameter, url: str | None) -> Client:
    settings = load_chosen_settings()
    token = ctx.meta["dq.token"] or next(iter(settings.api_tokens), None)
    try:
        return Client(url or own_url(settings), token)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_url = click.option(
    "--url", "client", callback=_connect, help="The API; without it the one of the settings."
)
_token = click.option(
    "--token",
    is_eager=True,
    expose_value=False,
    callback=_remember_token,
    help="API token; without it the first of the settings.",
)


def api_options(command: F) -> F:
    """--config, --url and --token, which become the command's argument `client`."""
    return config_option(_url(_token(command)))


def own_url(settings: Settings) -> str:
    """Where the API of these settings is reached from this machine."""
    host, port = settings.api_host, settings.api_port
    if port == 0:
        running = read_status(settings.data_dir).get("addresses", {})
        port = int(str(running.get("api", ":0")).rpartition(":")[2])
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def echo_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
