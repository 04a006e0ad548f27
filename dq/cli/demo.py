"""`dq demo`: what dq does, in a quarter of a minute, with nothing of it left behind.

A whole dq in a throw-away folder on free ports; its callbacks and its mail come to servers in
this process, which tells what arrives and when.
"""

from __future__ import annotations

import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path

import click

from dq.cli.demo_receivers import Arrival, Mail, Receivers
from dq.cli.options import Failed
from dq.client import Client
from dq.core.clock import mono_ms
from dq.workers.signals import die_with_parent
from dq.workers.status import read_status

_START_S = 30.0
_NEXT_EVENT_S = 75.0  # mails about dead jobs may wait a minute for company
_STOP_S = 20.0

Event = Arrival | Mail

_TOPICS: dict[str, dict[str, object]] = {
    "demo_order": {"name": "is answered well", "path": "/fine"},
    "demo_moody": {"name": "fails once, is retried", "path": "/moody"},
    "demo_broken": {
        "name": "fails for ever, dies",
        "path": "/broken",
        "max_retries": 1,
        "email": ["you@example.com"],
    },
}
_DELAYS_S = {"demo_order": (1.0, 1.5, 2.0), "demo_moody": (3.0,), "demo_broken": (6.0,)}
_ARRIVALS = 3 + 2 + 2


@click.command()
@click.option("--keep", is_flag=True, help="Go on running afterwards, until Ctrl-C.")
def demo(keep: bool) -> None:
    """Show jobs arriving on time, one being retried, one dying and its mail."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: clean up and go
    events: queue.Queue[Event] = queue.Queue()
    receivers = Receivers(events.put, events.put)
    password = secrets.token_urlsafe(9)
    with tempfile.TemporaryDirectory(prefix="dq-demo-", ignore_cleanup_errors=True) as name:
        program = _start_dq(Path(name), receivers.smtp_url, password)
        try:
            receivers.start()
            _show(Path(name), program, receivers.url, events, password, keep)
        finally:
            _stop(program)
            receivers.close()


def _show(
    folder: Path,
    program: subprocess.Popen[bytes],
    url: str,
    events: queue.Queue[Event],
    password: str,
    keep: bool,
) -> None:
    addresses = _wait_running(folder, program)
    click.echo(f"dq runs in {folder}: API http://{addresses['api']}, admin", nl=False)
    click.echo(f" http://{addresses['admin']} (user admin, password {password}).")
    click.echo("One unit of the backoff is a second here.\n")
    with Client(f"http://{addresses['api']}") as client:
        began_ms = _push_jobs(client, url)
        _tell_events(events, began_ms)
        click.echo(f"\n{_dead_in_words(client)}")
    if keep:
        click.echo("It goes on running; Ctrl-C ends it and removes its folder.")
        with suppress(KeyboardInterrupt):
            program.wait()


def _start_dq(folder: Path, smtp_url: str, password: str) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DQ_")}
    settings = {
        "DQ_API_PORT": "0",
        "DQ_ADMIN_PORT": "0",
        "DQ_ADMIN_PASSWORD": password,
        "DQ_RETRY_UNIT": "1",
        "DQ_SMTP_URL": smtp_url,
        "DQ_MAIL_FROM": "dq@localhost",
    }
    parent = os.getpid()
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "dq", "start"],
            cwd=folder,
            env={**inherited, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent),
        )


def _wait_running(folder: Path, program: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline_ms = mono_ms() + _START_S * 1000
    while mono_ms() < deadline_ms:
        status = read_status(folder / "data")
        if status.get("state") == "running":
            return dict(status["addresses"])
        with suppress(subprocess.TimeoutExpired):
            program.wait(0.05)
            break
    raise Failed(f"dq did not start:\n{(folder / 'output').read_text()}")


def _push_jobs(client: Client, url: str) -> float:
    for topic, fields in _TOPICS.items():
        rest = {key: value for key, value in fields.items() if key != "path"}
        callback = {"callback": f"{url}{fields['path']}", "retry_if": "{res.code}!=200"}
        client.put_topic(topic, {**rest, **callback})
    began_ms = mono_ms()
    for topic, delays_s in _DELAYS_S.items():
        for number, delay_s in enumerate(delays_s, 1):
            client.push(topic, {"order": number}, id=str(number), delay=delay_s)
            click.echo(f"pushed    {topic} {number}, due in {delay_s:g} s")
    return began_ms


def _tell_events(events: queue.Queue[Event], began_ms: float) -> None:
    arrivals, mails = 0, 0
    while arrivals < _ARRIVALS or mails < 1:
        try:
            event = events.get(timeout=_NEXT_EVENT_S)
        except queue.Empty:
            raise Failed(f"nothing more came within {_NEXT_EVENT_S:g} s") from None
        at_s = (mono_ms() - began_ms) / 1000
        if isinstance(event, Mail):
            mails += 1
            text = textwrap.indent(event.text.strip(), "          | ", lambda _: True)
            click.echo(f"{at_s:6.2f} s  mail: {event.subject}\n{text}")
        else:
            arrivals += 1
            click.echo(f"{at_s:6.2f} s  {_in_words(event)}")


def _in_words(arrival: Arrival) -> str:
    job = f"{arrival.topic} {arrival.id}, attempt {arrival.attempt}"
    lateness = f"{arrival.late_ms} ms after its due time"
    return f"callback: {job}, {lateness}; answered code {arrival.code}"


def _dead_in_words(client: Client) -> str:
    job = client.get("demo_broken", "1")
    last = job["history"][-1]
    return f"demo_broken 1 is {job['state']}: {last.get('detail')}"


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
