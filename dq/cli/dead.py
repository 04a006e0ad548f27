"""`dq dead …`: jobs whose last retry failed, through the API.

Many at once go in calls of a bounded size, so that a broken connection costs one of them and the
same command does the rest.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from dq.cli.options import (
    Failed,
    Instant,
    api_options,
    echo_history,
    echo_json,
    json_option,
    printable,
)
from dq.client import Client
from dq.core.clock import rfc3339

EACH_CALL = 1_000
_DETAIL_CHARS = 100


def _filters(command: Any) -> Any:
    """--from, --to and --q."""
    instant = Instant()
    for option in (
        click.option("--q", help="A part of id, key, the last failure's reason or its reply."),
        click.option("--to", type=instant, help="Died before this time (RFC 3339 or local)."),
        click.option("--from", "from_", type=instant, help="Died at this time or later."),
    ):
        command = option(command)
    return command


@click.group()
def dead() -> None:
    """Look at dead jobs, put them back on the schedule, or throw them away."""


@dead.command("list")
@click.option("--topic")
@_filters
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000))
@json_option
@api_options
def list_dead(client: Client, as_json: bool, limit: int, **options: Any) -> None:
    """Dead jobs, the latest death first."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(found) < limit:
        wanted = {**_wanted(options), "limit": min(limit - len(found), 200), "cursor": cursor}
        page = client.dead_jobs(**wanted)
        found += page["data"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if as_json:
        echo_json({"data": found, "has_more": cursor is not None})
        return
    for one in found:
        why = " ".join(f"{one['status'] or ''} {one['detail']}".split())[:_DETAIL_CHARS]
        click.echo(f"{rfc3339(one['died'])}  {one['topic']} {one['id']}  {printable(why)}")
    if cursor is not None:
        click.echo("there are more: raise --limit", err=True)


@dead.command()
@click.argument("topic")
@click.argument("id")
@json_option
@api_options
def show(client: Client, topic: str, id: str, as_json: bool) -> None:
    """Show a dead job with every attempt."""
    job = client.get(topic, id)
    if as_json:
        echo_json(job)
    else:
        click.echo(f"{topic} {id}: {job['state']}, pushed {rfc3339(job['created'])}")
        echo_history(job["history"])
    if job["state"] != "dead":
        raise Failed(f"{topic} {id} is {job['state']}, not dead")


@dead.command()
@click.argument("topic", required=False)
@click.argument("id", required=False)
@_filters
@click.option("--all", "is_all", is_flag=True, help="Of all topics.")
@json_option
@api_options
def redrive(
    client: Client, topic: str | None, id: str | None, is_all: bool, as_json: bool, **options: Any
) -> None:
    """Put dead jobs back on the schedule, due now, attempts from 1: one, those of a TOPIC, or
    all that the options name."""
    wanted = _chosen(topic, id, is_all, options)
    if topic is not None and id is not None:
        answer = client.redrive(topic, id)
        echo_json(answer) if as_json else click.echo(f"{topic} {id} redriven")
        return
    _work(client, "redrive", "redriven", wanted, as_json)


@dead.command()
@click.argument("topic", required=False)
@click.argument("id", required=False)
@_filters
@click.option("--all", "is_all", is_flag=True, help="Of all topics.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@api_options
def drop(
    client: Client,
    topic: str | None,
    id: str | None,
    is_all: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Throw dead jobs away: they are forgotten at once, with their history and body."""
    wanted = _chosen(topic, id, is_all, options)
    if not yes:
        what = f"job {id} of {topic}" if id else f"dead jobs of {topic or 'all topics'}"
        click.confirm(f"Forget {what} for ever?", abort=True, err=True)
    if topic is not None and id is not None:
        client.drop_dead(topic, id)
        echo_json({"result": "dropped"}) if as_json else click.echo(f"{topic} {id} dropped")
        return
    _work(client, "drop", "dropped", wanted, as_json)


def _chosen(
    topic: str | None, id: str | None, is_all: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """What is asked for. Everything is meant only where it is said."""
    wanted = _wanted({**options, "topic": topic})
    if id is not None and len(wanted) > 1:
        raise click.UsageError("one job is named by TOPIC and ID alone")
    if not wanted and not is_all:
        raise click.UsageError("name a TOPIC, a job, or --all")
    return wanted


def _wanted(options: dict[str, Any]) -> dict[str, Any]:
    names = {"from_": "from"}
    return {names.get(name, name): v for name, v in options.items() if v is not None}


def _work(client: Client, act: str, done_name: str, wanted: dict[str, Any], as_json: bool) -> None:
    total = {"matched": 0, done_name: 0, "gone": 0, "failed": 0}
    reasons: list[str] = []
    trouble, cursor = "", None
    is_seen = sys.stderr.isatty()
    while True:
        answer = client.work_dead(act, {**wanted, "limit": EACH_CALL}, cursor)
        for name in total:
            total[name] += answer[name]
        reasons += [reason for reason in answer["reasons"] if reason not in reasons]
        trouble, cursor = answer.get("trouble", ""), answer["next_cursor"]
        if is_seen:
            click.echo(f"\r{total[done_name]} {done_name} …", err=True, nl=False)
        if trouble or cursor is None:
            break
    if is_seen:
        click.echo("", err=True)
    if as_json:
        echo_json({**total, "reasons": reasons})
    else:
        gone = f", {total['gone']} were dead no more" if total["gone"] else ""
        click.echo(f"{total[done_name]} {done_name}{gone}")
    if total["failed"] or trouble:
        lines = [f"{total['failed']} failed; the same command does the rest:", *reasons[:5]]
        raise Failed("\n  ".join([*lines, *([trouble] if trouble not in reasons[:5] else [])]))
