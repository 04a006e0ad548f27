"""`dq replay`: what the logs for people say was accepted and never finished, pushed again."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from dq.api.instants import parse_fix_time, parse_rfc3339
from dq.cli.options import Failed, api_options, echo_json, json_option, load_chosen_settings
from dq.client import ApiError, Client
from dq.core.clock import now_ms, rfc3339
from dq.journal.replay import Push, Replay, Unfinished, Window

BATCH_JOBS = 500
SOON_MS = 600_000
BATCH_BYTES = 4 * 1024 * 1024
FAILURES_SHOWN = 20
FINISHED = ("done", "dead", "cancelled")


class _Instant(click.ParamType[int]):
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


@click.command()
@click.option("--from", "from_ms", type=_Instant(), required=True, help="Pushed at or after.")
@click.option("--to", "to_ms", type=_Instant(), help="Pushed before; without it: now.")
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
        pusher = Pusher(client)
        if is_applied:
            pusher.push_all(work, found)
    _report(window, work, found, pusher if is_applied else None, as_json)


class Pusher:
    """Pushes in batches; counts what became of each job."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def push_all(self, work: Replay, found: list[Unfinished]) -> None:
        batch: list[tuple[Unfinished, bytes]] = []
        size = 0
        read_ms = now_ms()
        for one, push in work.pushes(found):
            # What is due may end at any moment: it is pushed only if dq knows nothing of it.
            known = self._state_of(one) if one.due <= read_ms + SOON_MS else None
            if known is not None:
                self.counts["finished" if known in FINISHED else "kept"] += 1
                continue
            batch.append((one, _job_text(one, push)))
            size += len(batch[-1][1])
            if len(batch) >= BATCH_JOBS or size >= BATCH_BYTES:
                self._push(batch)
                batch, size = [], 0
        if batch:
            self._push(batch)

    def _state_of(self, one: Unfinished) -> str | None:
        """None when dq does not know this push, nor a newer one of the job."""
        try:
            job = self._client.get(one.topic, one.id)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        is_older = job["state"] in FINISHED and job["created"] < one.pushed_ms
        return None if is_older else str(job["state"])

    def _push(self, batch: list[tuple[Unfinished, bytes]]) -> None:
        results = self._client.push_batch([text for _, text in batch])
        for (one, _), result in zip(batch, results, strict=True):
            outcome = result.get("result")
            self.counts["failed" if outcome is None else outcome] += 1
            if outcome is None:
                self.failures.append(f"{one.topic} {one.id}: {result.get('detail')}")


def _job_text(one: Unfinished, push: Push) -> bytes:
    fields: dict[str, Any] = {
        "topic": push.topic,
        "id": push.id,
        "due": one.due,
        "priority": push.priority,
        "on_duplicate": "keep",
        "body": push.body,
    }
    if push.timeout:
        fields["timeout"] = push.timeout
    if push.key:
        fields["key"] = push.key
    return msgspec.json.encode(fields)


def _line_of(one: Unfinished) -> str:
    return f"{one.topic} {one.id}  pushed {rfc3339(one.pushed_ms)}  due {rfc3339(one.due)}"


def _report(
    window: Window, work: Replay, found: list[Unfinished], pusher: Pusher | None, as_json: bool
) -> None:
    counts = pusher.counts if pusher is not None else Counter[str]()
    failures = pusher.failures if pusher is not None else []
    lost = len(found) - counts.total() - work.replaced if pusher is not None else 0
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
    window: Window, work: Replay, found: list[Unfinished], pusher: Pusher | None
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
