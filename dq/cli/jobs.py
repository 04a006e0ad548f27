"""`dq push`, `dq get`, `dq cancel`: one job at a time, through the API."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from dq.cli.options import Failed, api_options, echo_history, echo_json, json_option
from dq.client import Client
from dq.core.clock import rfc3339


@click.command()
@click.argument("topic")
@click.argument("body")
@click.option("--id", "id", help="1 to 256 printable characters; without it dq makes one.")
@click.option("--delay", type=float, help="Seconds from now.")
@click.option("--due", help="Unix milliseconds or RFC 3339.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]))
@click.option("--key", help="A business key to search by.")
@click.option("--timeout", type=float, help="Seconds for one callback.")
@click.option("--on-duplicate", type=click.Choice(["replace", "keep", "reject"]))
@json_option
@api_options
def push(client: Client, topic: str, body: str, as_json: bool, **options: Any) -> None:
    """Push one job. BODY is JSON, @FILE with JSON in it, or - for the standard input."""
    if options["due"] and options["due"].isdigit():
        options["due"] = int(options["due"])
    answer = client.push(topic, _read_body(body), **options)
    if as_json:
        echo_json(answer)
    else:
        due = rfc3339(int(answer["due"]))
        click.echo(f"{answer['topic']} {answer['id']} {answer['result']}, due {due}")


@click.command()
@click.argument("topic")
@click.argument("id")
@json_option
@api_options
def get(client: Client, topic: str, id: str, as_json: bool) -> None:
    """Show a job and its history."""
    job = client.get(topic, id)
    if as_json:
        echo_json(job)
        return
    click.echo(f"{job['topic']} {job['id']}: {job['state']}, due {rfc3339(job['due'])}")
    click.echo(f"body {json.dumps(job.get('body'), ensure_ascii=False)}")
    echo_history(job.get("history", []))


@click.command()
@click.argument("topic")
@click.argument("id")
@json_option
@api_options
def cancel(client: Client, topic: str, id: str, as_json: bool) -> None:
    """Cancel a job. Fails when it is being called back now; no retry follows then either."""
    result = client.cancel(topic, id)
    if as_json:
        echo_json({"result": result})
    if result != "cancelled":
        raise Failed(f"{topic} {id} is {result} and can't be called back; no retry will follow")
    if not as_json:
        click.echo(f"{topic} {id} {result}")


def _read_body(body: str) -> bytes:
    """The JSON text as it came: the receiver gets it byte for byte."""
    if body == "-":
        text = sys.stdin.buffer.read()
    elif body.startswith("@"):
        try:
            text = Path(body[1:]).read_bytes()
        except OSError as error:
            raise click.BadParameter(f"{body[1:]}: {error.strerror}", param_hint="BODY") from None
    else:
        text = body.encode("utf-8", "surrogateescape")
    try:
        json.loads(text)
    except ValueError as error:
        hint = "" if body[:1] in "@-" else "; a text needs its quotes too: '\"text\"'"
        raise click.BadParameter(f"is no JSON: {error}{hint}", param_hint="BODY") from None
    return text
