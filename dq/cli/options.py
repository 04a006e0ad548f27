"""What several commands take: --config, --json, and the API they talk to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from dq.api.instants import parse_fix_time, parse_rfc3339
from dq.client import Client
from dq.core.clock import rfc3339
from dq.core.errors import DqError
from dq.core.settings import Settings, load_settings
from dq.workers.status import read_status

F = TypeVar("F", bound=Callable[..., Any])


class Instant(click.ParamType[int]):
    """A moment, as unix ms: RFC 3339, or local time as the API's `fix_time`."""

    name = "time"

    def convert(self, value: Any, _: click.Parameter | None, __: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_rfc3339(value) if "T" in value.upper() else parse_fix_time(value)
        except ValueError as error:
            raise click.BadParameter(
                f"{value!r} {error}; as 2026-11-21T06:00:00Z, or 2026-11-21 06:00:00 in the "
                "time zone of this machine"
            ) from None


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


def echo_history(history: Iterable[Mapping[str, Any]]) -> None:
    """A job's story, a line each: what the API tells of it."""
    for entry in history:
        words = [entry["state"], f"attempt {entry['attempt']}"]
        words += [str(entry[name]) for name in ("status", "detail") if entry.get(name)]
        click.echo(f"{rfc3339(entry['at'])}  {printable('  '.join(words))}")


def printable(text: str) -> str:
    """What an endpoint said must not steer a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)
