"""`dq restore`: what the nodes have lost comes back from the journal, through the API."""

from __future__ import annotations

import click

from dq.cli.options import Failed, api_options, echo_json, json_option
from dq.client import Client


@click.command()
@click.option(
    "--overdue/--no-overdue",
    default=True,
    show_default=True,
    help="Also what should have been called back already; it is called at once.",
)
@click.option("--topic", help="One job only: its topic,")
@click.option("--id", "id", help="and its id.")
@json_option
@api_options
def restore(
    client: Client, overdue: bool, topic: str | None, id: str | None, as_json: bool
) -> None:
    """Put back every unfinished job that the nodes have lost; what is there is left alone.

    dq does so by itself every ten minutes, and at once when a node has lost everything.
    """
    if (topic is None) != (id is None):
        raise click.UsageError("--topic and --id belong together")
    if topic is not None and id is not None:
        _restore_one(client, topic, id, as_json)
    else:
        _restore_all(client, overdue, as_json)


def _restore_one(client: Client, topic: str, id: str, as_json: bool) -> None:
    result = client.restore_job(topic, id)
    if as_json:
        echo_json({"result": result})
    else:
        click.echo(f"{topic} {id} {result}")


def _restore_all(client: Client, overdue: bool, as_json: bool) -> None:
    found = client.restore(overdue=overdue)
    if as_json:
        echo_json(found)
    else:
        click.echo(
            f"{found['looked_at']} unfinished jobs looked at: {found['restored']} were missing, "
            f"{found['rescheduled']} stood nowhere; these are put back"
        )
        if found["overdue_left"]:
            click.echo(f"{found['overdue_left']} are overdue and were left alone")
    if found["nodes_away"]:
        raise Failed(f"not everything could be looked at, away: {', '.join(found['nodes_away'])}")
