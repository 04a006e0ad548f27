"""`dq topic …`: the topics, through the API."""

from __future__ import annotations

import json
from typing import Any

import click

from dq.cli.options import api_options, echo_json, json_option
from dq.client import ApiError, Client


@click.group()
def topic() -> None:
    """Look at topics, make, change and delete them."""


@topic.command("list")
@json_option
@api_options
def list_topics(client: Client, as_json: bool) -> None:
    """All topics, one a line."""
    topics = client.topics()
    if as_json:
        echo_json(topics)
        return
    for one in topics:
        state = "off" if not one["enabled"] else "paused" if one["paused"] else "on"
        click.echo(f"{one['topic']:32} {state:8} {one['callback'] or 'pull'}")


@topic.command("get")
@click.argument("name")
@json_option
@api_options
def get_topic(client: Client, name: str, as_json: bool) -> None:
    """One topic, every field."""
    found = client.topic(name)
    if as_json:
        echo_json(found)
        return
    for field, value in found.items():
        click.echo(f"{field:16} {json.dumps(value, ensure_ascii=False)}")


@topic.command("set")
@click.argument("name")
@click.option("--file", type=click.File("r", "utf-8"), help="All fields, as JSON; - for stdin.")
@click.option("--name", "label", help="What it is for.")
@click.option("--callback", help="http:// or https://; empty: a pull topic.")
@click.option("--method", type=click.Choice(["POST", "GET"]))
@click.option("--format", "format", type=click.Choice(["json", "form"]))
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="Repeatable.")
@click.option("--delay", type=float, help="Seconds.")
@click.option("--timeout", type=float, help="Seconds, of one whole callback.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]))
@click.option("--email", multiple=True, help="Who hears of dead jobs. Repeatable.")
@click.option("--creator")
@click.option("--retry-if", help="A rule, as {res.code}!=200.")
@click.option("--empty-is-failure/--empty-is-success", default=None)
@click.option("--max-retries", type=int)
@click.option("--backoff", help="2n+1, exp:BASE,MAX, or a list as 10s,1m,5m.")
@click.option("--concurrency", type=int, help="Callbacks in flight at most; 0: no limit.")
@click.option("--rate", type=float, help="Callbacks a second at most; 0: no limit.")
@click.option("--secret", help="Signs the callbacks; empty: unsigned.")
@click.option("--enabled/--disabled", default=None, help="Disabled: pushes are refused.")
@click.option("--paused/--resumed", default=None, help="Paused: callbacks wait.")
@click.option("--keep-done", type=float, help="Days that done jobs are remembered; 0: for ever.")
@click.option("--keep-dead", type=float, help="Days that dead jobs are; 0: for ever.")
@json_option
@api_options
def set_topic(client: Client, name: str, as_json: bool, file: Any, **options: Any) -> None:
    """Make a topic, or change the fields that are given; --file replaces it whole."""
    before = _read_file(file) if file else _existing(client, name)
    saved = client.put_topic(name, {**before, **_given_fields(options)})
    if as_json:
        echo_json(saved)
    else:
        click.echo(f"{name} saved")


@topic.command("delete")
@click.argument("name")
@api_options
def delete_topic(client: Client, name: str) -> None:
    """Delete a topic."""
    client.delete_topic(name)
    click.echo(f"{name} deleted")


def _existing(client: Client, name: str) -> dict[str, Any]:
    try:
        found = client.topic(name)
    except ApiError as error:
        if error.status == 404:
            return {}
        raise
    return {field: value for field, value in found.items() if field != "topic"}


def _read_file(file: Any) -> dict[str, Any]:
    try:
        fields = json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="--file") from None
    if not isinstance(fields, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--file")
    return fields


def _given_fields(options: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in options.items() if value not in (None, ())}
    if "label" in fields:
        fields["name"] = fields.pop("label")
    if "headers" in fields:
        fields["headers"] = dict(_split_header(header) for header in fields["headers"])
    for name in ("callback", "secret", "concurrency", "rate"):
        if name in fields and not fields[name]:
            fields[name] = None
    return fields


def _split_header(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(":")
    if not colon:
        raise click.BadParameter(f"{header!r} is not NAME:VALUE", param_hint="--header")
    return name.strip(), value.strip()
