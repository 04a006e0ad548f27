"""`dq replay`: what the logs for people say was accepted and never finished, pushed again."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from dq.cli.options import (
    Failed,
    Instant,
    api_options,
    echo_json,
    json_option,
    load_chosen_settings,
)
from dq.client import ApiError, Client
from dq.core.clock import now_ms, rfc3339
from dq.journal.push_again import Again, Ask, Batch, Known, Outcome, PushingAgain
from dq.journal.replay import Replay, Unfinished, Window

FAILURES_SHOWN = 20


@click.command()
@click.option("--from", "from_ms", type=Instant(), required=True, help="Pushed at or after.")
@click.option("--to", "to_ms", type=Instant(), help="Pushed before; without it: now.")
@click.option("--topic", help="Of this topic only.")
@click.option("--apply", "is_applied", is_flag=True, help="Push it again; without it: only list.")
@json_option
@api_options
def replay(
    client: Client,
    from_ms: int,
    to_ms: int | None,
    topic: str | None,
    is_applied: bool,
    as_json: bool,
) -> None:
    """List what was accepted and never finished, out of DQ_LOG_DIR; push it again with --apply.

    Whatever dq still has is left as it is, so it may be applied twice.
    """
    window = Window(from_ms, now_ms() if to_ms is None else to_ms, topic)
    if window.from_ms >= window.to_ms:
        raise click.UsageError("--from must be before --to")
    folder = load_chosen_settings().log_dir
    with _progress("reading the logs") as (told, begin):
        work = Replay(folder, window, told)
        begin(work.total_bytes())
        found = work.find()
        if not as_json and not is_applied:
            for one in found:
                click.echo(_line_of(one))
        pusher = PushingAgain()
        if is_applied:
            _carry_out(client, pusher.steps(work, found))
    _report(window, work, found, pusher if is_applied else None, as_json)


def _carry_out(client: Client, steps: Generator[Ask | Batch, Any, None]) -> None:
    """All steps, through the API."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return
        answer = _ask(client, step) if isinstance(step, Ask) else _push(client, step)


def _ask(client: Client, step: Ask) -> Known | None:
    try:
        job = client.get(step.topic, step.id)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return Known(str(job["state"]), job["created"])


def _push(client: Client, step: Batch) -> list[Outcome]:
    results = client.push_batch([_job_text(job) for job in step.jobs])
    return [Outcome(one.get("result") or "", str(one.get("detail"))) for one in results]


def _job_text(job: Again) -> bytes:
    fields: dict[str, Any] = {
        "topic": job.topic,
        "id": job.id,
        "due": job.due_ms,
        "priority": job.priority,
        "on_duplicate": "keep",
        "body": job.body,
    }
    if job.timeout_s:
        fields["timeout"] = job.timeout_s
    if job.key:
        fields["key"] = job.key
    return msgspec.json.encode(fields)


def _line_of(one: Unfinished) -> str:
    return f"{one.topic} {one.id}  pushed {rfc3339(one.pushed_ms)}  due {rfc3339(one.due)}"


def _report(
    window: Window,
    work: Replay,
    found: list[Unfinished],
    pusher: PushingAgain | None,
    as_json: bool,
) -> None:
    counts = pusher.counts if pusher is not None else Counter[str]()
    told = pusher.failures if pusher is not None else []
    failures = [f"{topic} {id_}: {detail}" for topic, id_, detail in told]
    lost = pusher.lost(work, found) if pusher is not None else 0
    if as_json:
        echo_json(_document(window, work, found, pusher))
    elif pusher is None:
        click.echo(f"{len(found)} accepted and never finished; --apply pushes again what dq lacks")
    else:
        click.echo(
            f"{len(found)} accepted and never finished: {counts['created']} pushed again, "
            f"{counts['kept']} were still there, {counts['finished']} have finished meanwhile"
        )
    troubles = [*failures[:FAILURES_SHOWN]]
    if len(failures) > FAILURES_SHOWN:
        troubles.append(f"and {len(failures) - FAILURES_SHOWN} more")
    if lost:
        troubles.append(f"{lost} bodies could not be read again")
    if work.broken:
        troubles.append(f"{work.broken} broken lines could not be read; what they told is unknown")
    if troubles:
        summary = f"{len(failures)} not pushed" if failures else "not everything could be read"
        raise Failed("\n  ".join([f"{summary}:", *troubles]))


def _document(
    window: Window, work: Replay, found: list[Unfinished], pusher: PushingAgain | None
) -> dict[str, Any]:
    jobs = [
        {"topic": one.topic, "id": one.id, "pushed": one.pushed_ms, "due": one.due} for one in found
    ]
    document = {
        "from": window.from_ms,
        "to": window.to_ms,
        "applied": pusher is not None,
        "found": len(found),
        "broken_lines": work.broken,
    }
    if pusher is not None:
        names = ("created", "kept", "finished", "failed")
        document |= {name: pusher.counts[name] for name in names}
    return {**document, "jobs": jobs}


@contextmanager
def _progress(label: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """How many bytes were read, on a terminal; the second function is told how many there are."""
    if not sys.stderr.isatty():
        yield (lambda _: None), (lambda _: None)
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def begin(total: int) -> None:
            bar.length = max(total, 1)

        yield bar.update, begin
