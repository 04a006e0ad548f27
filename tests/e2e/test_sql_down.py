"""SQL is away, hangs, is locked or refuses a row: pushes and callbacks go on, and afterwards the
journal has each job's history once."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flow import Flow
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.mariadb import MariaDB, start_mariadb
from tests.support import wait_until

DONE = 3

Query = Callable[[str], Iterable[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    server = start_mariadb()
    yield server
    server.stop()


def asking(mariadb: MariaDB, url: str) -> Query:
    return lambda sql: mariadb.run(sql, url.rpartition("/")[2])


def asking_sqlite(folder: Path) -> Query:
    def ask(sql: str) -> Iterable[tuple[Any, ...]]:
        connection = sqlite3.connect(folder / "data" / "dq.db", timeout=10)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return ask


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another process holds dq's SQLite file for itself."""
    connection = sqlite3.connect(folder / "data" / "dq.db", timeout=10, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def check_journal(dq: Program, ask: Query, ids: set[str]) -> None:
    """Each of these jobs of topic t is in the tables once, with one line of history: done."""
    wait_until(lambda: set(finished(ask)) >= ids, 30, "the journal to catch up")
    wait_until(lambda: not list(ask("SELECT version FROM messages WHERE stub")), 30, "all pushes")
    jobs = Counter(text(id_) for (id_,) in ask("SELECT id FROM messages WHERE topic = 't'"))
    assert jobs == dict.fromkeys(ids, 1)
    lines = Counter(
        text(id_)
        for (id_,) in ask(
            "SELECT m.id FROM transitions t JOIN messages m ON m.version = t.version "
            "WHERE m.topic = 't'"
        )
    )
    assert lines == dict.fromkeys(ids, 1)
    for id_ in sorted(ids)[:: max(1, len(ids) // 40)]:
        job = dq.call("GET", f"/v1/jobs/t/{id_}").json
        assert job["state"] == "done"
        assert [(one["state"], one["attempt"]) for one in job["history"]] == [
            ("delayed", 0),
            ("done", 1),
        ]


def finished(ask: Query) -> list[str]:
    rows = ask(f"SELECT id FROM messages WHERE topic = 't' AND state = {DONE}")
    return [text(id_) for (id_,) in rows]


def database_of(dq: Program) -> str:
    """What /readyz says of it; SQL alone never makes dq unready."""
    reply = dq.call("GET", "/readyz")
    assert reply.status == 200, reply.raw
    return str(reply.json["parts"]["database"])


def errors_of(dq: Program) -> str:
    return "\n".join(line["message"] for line in dq.lines("err"))


def check_calls(receiver: Receiver, ids: set[str]) -> None:
    wait_until(lambda: ids <= set(receiver.ids()), 30, "every job called back")
    assert receiver.ids() == dict.fromkeys(ids, 1)


def worst_lateness_ms(receiver: Receiver, flow: Flow) -> float:
    return max(call.at_ms - flow.due[call.id] for call in receiver.calls if call.id in flow.due)


@pytest.mark.time_limit(120)
def test_mariadb_is_down_at_the_start(tmp_path: Path, mariadb: MariaDB) -> None:
    url = mariadb.fresh_url()
    with Receiver() as receiver, Program(tmp_path, DQ_DATABASE_URL=url) as dq:
        dq.topic("t", callback=receiver.url)
        assert dq.push("t", "before").status == 201
        wait_until(lambda: dq.state("t", "before") == "done")
        assert database_of(dq) == "ok"
        assert dq.stop() == 0

        mariadb.kill()
        try:
            dq.start()
            wait_until(lambda: database_of(dq) == "unknown")
            pushes = [dq.push("t", f"during-{n}").status for n in range(50)]
            assert set(pushes) == {201}
            ids = {"before", *(f"during-{n}" for n in range(50))}
            check_calls(receiver, ids)
            check_answers_without_sql(dq, receiver)
        finally:
            mariadb.start()
        wait_until(lambda: database_of(dq) == "ok")
        dq.call("DELETE", "/v1/jobs/t/later")
        check_journal(dq, lambda sql: without(asking(mariadb, url)(sql), "later"), ids)
        assert dq.state("t", "later") == "cancelled"
        assert dq.stop() == 0


def without(rows: Iterable[tuple[Any, ...]], id_: str) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[0] not in (id_, id_.encode())]


def check_answers_without_sql(dq: Program, receiver: Receiver) -> None:
    """What only SQL knows is answered 503, what Redis knows is answered."""
    assert dq.push("t", "later", delay=3600).status == 201
    later = dq.call("GET", "/v1/jobs/t/later")
    assert (later.status, later.json["state"]) == (200, "delayed")
    assert later.json["history_error"]
    for method, path, doc in (
        ("GET", "/v1/jobs/t/before", None),
        ("GET", "/v1/jobs?topic=t", None),
        ("PUT", "/v1/topics/new", {"callback": receiver.url}),
        ("DELETE", "/v1/topics/t", None),
    ):
        reply = dq.call(method, path, doc)
        assert (reply.status, "retry-after" in reply.headers) == (503, True), (path, reply.raw)
        assert "database" in reply.json["detail"] or "database" in reply.json["title"]
    assert dq.call("GET", "/v1/topics/t").status == 200


@pytest.mark.time_limit(120)
@pytest.mark.parametrize("fault", ["killed", "hung"])
def test_mariadb_goes_during_a_flow(tmp_path: Path, mariadb: MariaDB, fault: str) -> None:
    url = mariadb.fresh_url()
    with Receiver() as receiver, Program(tmp_path, DQ_DATABASE_URL=url) as dq:
        dq.topic("t", callback=receiver.url)
        flow = Flow(dq, "t", 300, "a-", 1.0)
        wait_until(lambda: len(flow.acknowledged) >= 80, 20)
        mariadb.kill() if fault == "killed" else mariadb.freeze()
        try:
            flow.finish()
            assert len(flow.acknowledged) == 300
            check_calls(receiver, flow.acknowledged)
            assert worst_lateness_ms(receiver, flow) < 3000
            if fault == "killed":
                wait_until(lambda: "SQL is away" in errors_of(dq), 10)
                wait_until(lambda: database_of(dq) == "unknown", 15)
            second = Flow(dq, "t", 40, "b-", 0.5)
            second.finish()
            check_calls(receiver, flow.acknowledged | second.acknowledged)
        finally:
            mariadb.start() if fault == "killed" else mariadb.thaw()
        check_journal(dq, asking(mariadb, url), flow.acknowledged | second.acknowledged)
        assert {one["restarts"] for one in dq.told()} == {0}
        assert dq.stop() == 0


@pytest.mark.time_limit(120)
def test_a_stop_and_a_start_do_not_wait_for_a_mariadb_that_hangs(
    tmp_path: Path, mariadb: MariaDB
) -> None:
    url = mariadb.fresh_url()
    with Receiver() as receiver, Program(tmp_path, DQ_DATABASE_URL=url) as dq:
        dq.topic("t", callback=receiver.url)
        mariadb.freeze()
        try:
            ids = {f"hung-{n}" for n in range(20)}
            assert {dq.push("t", id_).status for id_ in ids} == {201}
            check_calls(receiver, ids)
            began = time.monotonic()
            assert dq.stop() == 0
            assert time.monotonic() - began < 25
            dq.start()
            wait_until(lambda: dq.push("t", "hung-20").status == 201)
            ids.add("hung-20")
            check_calls(receiver, ids)
        finally:
            mariadb.thaw()
        check_journal(dq, asking(mariadb, url), ids)
        check_calls(receiver, ids)


@pytest.mark.time_limit(120)
def test_sqlite_is_locked_at_the_start_and_during_a_flow(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url)
        assert dq.stop() == 0
        with locked(tmp_path):
            dq.start()
            early = Flow(dq, "t", 40, "a-", 0.5)
            early.finish()
            check_calls(receiver, early.acknowledged)
        flow = Flow(dq, "t", 260, "b-", 1.0)
        wait_until(lambda: len(flow.acknowledged) >= 50, 20)
        ids = early.acknowledged
        with locked(tmp_path):
            flow.finish()
            ids |= flow.acknowledged
            check_calls(receiver, ids)
            assert worst_lateness_ms(receiver, flow) < 3000
            assert database_of(dq) in ("ok", "unknown")
        assert len(ids) == 300
        check_journal(dq, asking_sqlite(tmp_path), ids)
        assert {one["restarts"] for one in dq.told()} == {0}
        assert dq.stop() == 0


def check_one_row_is_set_aside(dq: Program, receiver: Receiver, ask: Query, bad: object) -> None:
    good = {f"good-{n}" for n in range(20)}
    for id_ in sorted(good)[:10]:
        assert dq.push("t", id_, 1).status == 201
    assert dq.push("t", "bad", bad).status == 201
    for id_ in sorted(good)[10:]:
        assert dq.push("t", id_, 1).status == 201
    check_calls(receiver, {*good, "bad"})
    told = "t/bad: SQL refuses a row, it is set aside"
    wait_until(lambda: told in errors_of(dq), 15)
    wait_until(lambda: good <= set(finished(ask)), 15)
    for id_ in good:
        assert dq.state("t", id_) == "done"
    reply = dq.call("GET", "/v1/jobs/t/bad")
    assert reply.status in (200, 404)
    assert reply.json is not None
    page = dq.call("GET", "/v1/jobs?topic=t&limit=100")
    assert page.status == 200, page.raw
    assert good <= {job["id"] for job in page.json["data"]}
    assert receiver.ids() == dict.fromkeys({*good, "bad"}, 1)
    assert {one["restarts"] for one in dq.told()} == {0}


@pytest.mark.time_limit(120)
def test_a_body_larger_than_mariadbs_packet_is_set_aside(tmp_path: Path, mariadb: MariaDB) -> None:
    (before,) = mariadb.run("SELECT @@global.max_allowed_packet")
    mariadb.run("SET GLOBAL max_allowed_packet = 65536")
    try:
        url = mariadb.fresh_url()
        with Receiver() as receiver, Program(tmp_path, DQ_DATABASE_URL=url) as dq:
            dq.topic("t", callback=receiver.url)
            check_one_row_is_set_aside(dq, receiver, asking(mariadb, url), "x" * 100_000)
    finally:
        mariadb.run(f"SET GLOBAL max_allowed_packet = {before[0]}")


@pytest.mark.time_limit(120)
def test_a_row_that_sqlite_refuses_is_set_aside(tmp_path: Path) -> None:
    with Receiver() as receiver, Program(tmp_path) as dq:
        dq.topic("t", callback=receiver.url)
        ask = asking_sqlite(tmp_path)
        ask(
            "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN NEW.id = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
        check_one_row_is_set_aside(dq, receiver, ask, 1)
