"""A million waiting jobs, everything in Valkey lost: when they are back, and what is late.

    python -m tests.bench.restore [JOBS]

Runs the whole program in a throw-away folder. The jobs are written into the journal; a first
restore brings them into the buckets, then all is flushed while callbacks come due all the time.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

import redis

from dq.db.migrate import migrate
from tests.bench.rows import fill_jobs
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.e2e.test_restore import push_many

DUE_EACH_S = 0.05
SPAN_S = 60


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="dq-bench-") as name, Receiver() as receiver:
        folder = Path(name)
        _fill(folder, count)
        program = Program(folder)
        program.ready_within_s = 600.0  # the first start restores them all
        began = time.monotonic()
        with program as dq:
            client = _client(folder)
            _wait_whole(client, count)
            print(f"first restore, with the start: {time.monotonic() - began:.1f} s", flush=True)
            dq.topic("live", callback=receiver.url)
            _measure(dq, client, receiver, count)
            _audit(dq, client, count)


def _fill(folder: Path, count: int) -> None:
    (folder / "data").mkdir()
    path = folder / "data" / "dq.db"
    migrate(f"sqlite+aiosqlite:///{path}")
    fill_jobs(path, count, first_us=int((time.time() - 86_400) * 1e6), waiting_each=1)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE messages SET due = due + 10 * 86400000")
    database.close()


def _client(folder: Path) -> redis.Redis:
    path = (folder / "data" / "valkey" / "valkey.sock").resolve()
    return redis.Redis(unix_socket_path=str(path))


def _wait_whole(client: redis.Redis, count: int) -> None:
    while True:
        states = {client.hget(f"{{dq{n}}}:meta", "state") for n in range(4)}
        jobs = sum(int(client.hlen(f"{{dq{n}}}:jobs")) for n in range(4))
        if states == {b"ready"} and jobs >= count:
            return
        time.sleep(0.05)


def _measure(dq: Program, client: redis.Redis, receiver: Receiver, count: int) -> None:
    begin_ms = int(time.time() * 1000) + 5_000
    jobs: list[dict[str, object]] = [
        {"topic": "live", "id": f"before-{n}", "due": begin_ms + int(n * DUE_EACH_S * 1000)}
        for n in range(int(SPAN_S / DUE_EACH_S))
    ]
    due = {str(job["id"]): job["due"] for job in jobs}
    push_many(dq, jobs)
    fresh = threading.Thread(target=_push_on, args=(dq, due), daemon=True)
    time.sleep(7)
    pid = dq.pids()["dq-redis-checker"]
    client.flushall()
    began = time.monotonic()
    fresh.start()
    _wait_whole(client, count)
    took_s = time.monotonic() - began
    print(f"restored after FLUSHALL in {took_s:.1f} s; checker: {_memory(pid)}", flush=True)
    fresh.join()
    while len(receiver.ids()) < len(due):
        time.sleep(0.1)
    late: dict[str, list[float]] = {"before": [], "fresh": []}
    for call in receiver.calls:
        late[call.id.partition("-")[0]].append(call.at_ms - int(str(due[call.id])))
    for kind, spans in late.items():
        spans.sort()
        half, most = spans[len(spans) // 2] / 1000, spans[-1] / 1000
        print(f"{kind}: {len(spans)} called, late by {half:.3f} s (half), {most:.1f} s (most)")
    print(f"called twice: {sum(n > 1 for n in receiver.ids().values())}", flush=True)


def _push_on(dq: Program, due: dict[str, object]) -> None:
    """Producers don't wait for a restore."""
    refused = 0
    for number in range(300):
        at_ms = int(time.time() * 1000) + 1000
        due[f"fresh-{number}"] = at_ms
        while dq.push("live", f"fresh-{number}", due=at_ms).status not in (200, 201):
            refused += 1
            time.sleep(0.02)
        time.sleep(0.1)
    print(f"300 pushed meanwhile, {refused} times answered 503 first", flush=True)


def _audit(dq: Program, client: redis.Redis, count: int) -> None:
    for lost in ("nothing", "due", "jobs"):
        for number in range(4):
            if lost != "nothing":
                client.delete(f"{{dq{number}}}:{lost}")
        began = time.monotonic()
        reply = dq.call("POST", "/v1/restore", timeout_s=600)
        _wait_whole(client, count)
        print(f"restore, {lost} lost: {time.monotonic() - began:.1f} s {reply.raw!r}", flush=True)
    print(f"server: {_memory(dq.pids()['dq-server-0'])}", flush=True)


def _memory(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    now, most = (int(found[key].split()[0]) // 1024 for key in ("VmRSS", "VmHWM"))
    return f"{now} MB, at most {most} MB"


if __name__ == "__main__":
    main()
