"""Several Redis nodes: jobs are on all of them, and one that is away is nobody else's trouble."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dq.queue.keys import bucket_keys
from tests.e2e.program import Program
from tests.e2e.receiver import Receiver
from tests.e2e.test_restore import push_many
from tests.e2e.test_signals import pids_of
from tests.support import wait_until
from tests.valkey import Valkey


@contextmanager
def valkeys(folder: Path, count: int) -> Iterator[list[Valkey]]:
    """So many nodes, running; whatever a test did to them, they end."""
    nodes = [Valkey(folder / name) for name in "abcdef"[:count]]
    for node in nodes:
        node.folder.mkdir()
        node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def urls(nodes: list[Valkey]) -> str:
    return ",".join(node.url for node in nodes)


def held_by(node: Valkey, ids: list[str]) -> set[str]:
    """Which of these ids have their record on the node, found without dq's own code."""
    found: set[str] = set()
    with node.client() as client:
        for number in range(4):
            for key in bucket_keys(number):
                if client.type(key) == b"hash":
                    text = b"\0".join(client.hvals(key))
                    found |= {id_ for id_ in ids if b"<%s>" % id_.encode() in text}
    return found


def push_waiting(dq: Program, ids: list[str], due: int, topic: str = "t") -> None:
    """The body holds the id in brackets, so that a record can be told by it."""
    push_many(dq, [{"topic": topic, "id": id_, "body": f"<{id_}>", "due": due} for id_ in ids])


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def check_all_known(dq: Program, ids: list[str]) -> None:
    for id_ in ids:
        assert dq.state("t", id_) == "delayed", id_


@pytest.mark.time_limit(120)
def test_jobs_are_found_on_their_node_whatever_the_list_says_later(tmp_path: Path) -> None:
    with valkeys(tmp_path, 3) as nodes, Receiver() as receiver:
        first, second, third = nodes
        with Program(tmp_path, DQ_REDIS_URLS=urls([first, second])) as dq:
            dq.topic("t", callback=receiver.url)
            ids = [f"j{number}" for number in range(60)]
            push_waiting(dq, ids, in_ms(3600))
            on_first, on_second = held_by(first, ids), held_by(second, ids)
            assert on_first | on_second == set(ids)
            assert not on_first & on_second
            assert min(len(on_first), len(on_second)) >= 10
            assert dq.stop() == 0

            dq.environ["DQ_REDIS_URLS"] = urls([second, first])
            dq.start()
            check_all_known(dq, ids)
            cancelled = [min(on_first), min(on_second)]
            for id_ in cancelled:
                reply = dq.call("DELETE", f"/v1/jobs/t/{id_}")
                assert reply.json == {"result": "cancelled"}
            assert dq.stop() == 0

            dq.environ["DQ_REDIS_URLS"] = urls([third, second, first])
            dq.start()
            left = sorted(set(ids) - set(cancelled))
            check_all_known(dq, left)
            for id_ in cancelled:
                wait_until(lambda id_=id_: dq.state("t", id_) == "cancelled", 20, id_)
            for id_ in left:
                reply = dq.push("t", id_, f"<{id_}>", due=in_ms(1800))
                assert reply.json["result"] == "replaced"
            assert not held_by(third, ids), "a job moved when it was replaced"
            more = [f"m{number}" for number in range(60)]
            push_waiting(dq, more, in_ms(1800))
            assert len(held_by(third, more)) >= 5
            for id_ in (*left, *more):
                assert dq.call("POST", f"/v1/jobs/t/{id_}/run").status == 200
            wait_until(lambda: set(receiver.ids()) == {*left, *more}, 20)
            assert set(receiver.ids().values()) == {1}
            assert dq.stop() == 0


@pytest.mark.time_limit(120)
def test_a_node_is_added_by_a_reload_under_way(tmp_path: Path) -> None:
    with valkeys(tmp_path, 2) as nodes, Receiver() as receiver:
        (tmp_path / "dq.toml").write_text(f'redis_urls = "{nodes[0].url}"\n')
        with Program(tmp_path) as dq:
            dq.topic("t", callback=receiver.url)
            ids = [f"j{number}" for number in range(30)]
            push_waiting(dq, ids, in_ms(3600))
            before = pids_of(dq)
            (tmp_path / "dq.toml").write_text(f'redis_urls = "{urls(nodes)}"\n')
            os.kill(before["dq-master"], signal.SIGHUP)
            wait_until(
                lambda: (
                    all(one["state"] == "running" for one in dq.told())
                    and not (set(pids_of(dq).values()) - {before["dq-master"]})
                    & set(before.values())
                ),
                20,
            )
            check_all_known(dq, ids)
            more = [f"m{number}" for number in range(60)]
            push_waiting(dq, more, in_ms(3600))
            assert len(held_by(nodes[1], more)) >= 10
            for id_ in (*ids, *more):
                assert dq.call("POST", f"/v1/jobs/t/{id_}/run").status == 200
            wait_until(lambda: set(receiver.ids()) == {*ids, *more}, 20)
            assert set(receiver.ids().values()) == {1}


@pytest.mark.time_limit(120)
@pytest.mark.parametrize("fault", ["killed", "hung"])
def test_a_node_that_is_away_holds_up_only_its_own_jobs(tmp_path: Path, fault: str) -> None:
    with (
        valkeys(tmp_path, 2) as nodes,
        Receiver() as receiver,
        Program(tmp_path, DQ_REDIS_URLS=urls(nodes)) as dq,
    ):
        living, away = nodes
        dq.topic("t", callback=receiver.url)
        dq.topic("other", callback=receiver.url)
        due = in_ms(3)
        ids = [f"j{number}" for number in range(80)]
        push_waiting(dq, ids, due)
        here, there = held_by(living, ids), held_by(away, ids)
        away.signal(signal.SIGKILL if fault == "killed" else signal.SIGSTOP)

        for id_ in sorted(there)[:2]:
            reply = dq.call("GET", f"/v1/jobs/t/{id_}")
            assert (reply.status, "retry-after" in reply.headers) == (503, True), reply.raw
        wait_until(lambda: here <= set(receiver.ids()), 20)
        check_on_time(receiver, due)
        assert set(receiver.ids()) == here
        taken, refused = push_some(dq, 8)
        assert taken
        wait_until(lambda: taken <= set(receiver.ids()), 20)
        assert dq.call("GET", "/readyz").status == 200

        if fault == "killed":
            away.kill()
            away.start()
        else:
            away.signal(signal.SIGCONT)
        wait_until(lambda: {*ids, *taken} <= set(receiver.ids()), 30, "the jobs of the other node")
        for id_ in refused:
            wait_until(lambda id_=id_: dq.push("t", id_).status in (200, 201), 20)
        wait_until(lambda: {*ids, *taken, *refused} <= set(receiver.ids()), 30)
        once = {id_: count for id_, count in receiver.ids().items() if id_ not in refused}
        assert once == dict.fromkeys([*ids, *taken], 1)
        for id_ in sorted(there)[:2]:
            wait_until(lambda id_=id_: dq.state("t", id_) == "done")
        assert dq.stop() == 0


def check_on_time(receiver: Receiver, due: int) -> None:
    late = [call.at_ms - due for call in receiver.calls]
    assert min(late) >= 0
    assert max(late) < 1500, f"{max(late):.0f} ms late"


def push_some(dq: Program, count: int) -> tuple[set[str], set[str]]:
    """Which pushes were taken, and which were answered 503 with Retry-After; none else."""
    taken: set[str] = set()
    refused: set[str] = set()
    for number in range(count):
        reply = dq.push("t", f"new-{number}")
        if reply.status == 201:
            taken.add(f"new-{number}")
        else:
            assert (reply.status, "retry-after" in reply.headers) == (503, True), reply.raw
            refused.add(f"new-{number}")
    return taken, refused
