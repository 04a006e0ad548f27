"""The store against a small model, on a real Valkey with a clock that the test turns.

Random pushes, cancels, moves, leases, outcomes, expiries and losses. After every step: no job is
lost, none stands in two places, none is handed out early, every count adds up; after a loss the
logs of all writers, sent again in a random order, bring back exactly what the model knows.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dq.queue import records
from dq.queue.nodes import Nodes
from dq.queue.records import Code, StoredJob, Verdict, Version, digest_of
from dq.queue.store import LEASE_MS as HEIRS_LEASE_MS
from dq.queue.store import Store
from tests.redis.desk import holder_of
from tests.valkey import Valkey

T0 = 1_800_000_000_000
IDS = [f"job{n}" for n in range(6)]
TOPICS = ["a", "b"]
SERVERS = [b"server-1", b"server-2"]
CONSUMERS = [b"consume1", b"consume2"]
HEIR = b"the-heir"
LEASE_MS = 5_000
EXAMPLES = int(os.environ.get("DQ_TEST_EXAMPLES", "60"))
"""How many random stories; more for a night."""


@dataclass
class Known:
    """A job as the model has it."""

    version: Version
    due: int
    retries: int = 0
    closed: bool = False
    token: bytes | None = None
    losses: int = 0


@dataclass
class Held:
    """A lease as a consumer remembers it, whether it is still good or not."""

    name: tuple[str, str]
    token: bytes
    job: StoredJob
    consumer: bytes


@dataclass
class Writing:
    """A writer's log: every record it ever had applied."""

    records: list[bytes] = field(default_factory=list)


class Queue(RuleBasedStateMachine):
    """The rules; `valkey` is set by the test."""

    valkey: Valkey

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = self.valkey.client()
        self.client.flushall()
        self.store = Store()
        self.nodes = Nodes([self.valkey.url], 1)
        self.do(self.nodes.open(Path(mkdtemp()) / "nodes.json"))
        self.bucket = self.nodes.buckets[0]
        self.bucket.epoch, _ = self.do(self.store.found(self.bucket, b"e"))
        self.now = T0
        self.stamp = T0 * 1000
        self.jobs: dict[tuple[str, str], Known] = {}
        self.held: list[Held] = []
        self.logs = {writer: Writing() for writer in [*SERVERS, *CONSUMERS, HEIR]}
        self.tokens = 0
        self.heard = dict.fromkeys(CONSUMERS, 0)
        self.snapshot: dict[bytes, bytes] | None = None
        self.finished: set[bytes] = set()

    def do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.do(self.nodes.close())
        self.loop.close()

    def tick(self) -> int:
        self.stamp = max(self.stamp + 1, self.now * 1000)
        return self.stamp

    def write(self, writer: bytes, record: list[Any]) -> Code:
        log = self.logs[writer].records
        log.append(records.pack(record))
        call = {"flags": "", "now_ms": self.now}
        answer = self.do(self.store.apply(self.bucket, writer, len(log), log[-1:], **call))
        assert (answer.state, answer.position) == ("OK", len(log))
        again = self.do(self.store.apply(self.bucket, writer, len(log), log[-1:], **call))
        assert again == answer, "a repeated call changes nothing and answers the same"
        code = Code(answer.codes[0])
        if code >= Code.REFUSED:
            log[-1] = records.NOTHING  # what the writer's note makes of it
        return code

    @rule(
        topic=st.sampled_from(TOPICS),
        id_=st.sampled_from(IDS),
        delay=st.integers(-100, 5_000),
        writer=st.sampled_from(SERVERS),
        how=st.integers(0, 2),
        priority=st.integers(0, 2),
    )
    def push(
        self, topic: str, id_: str, delay: int, writer: bytes, how: int, priority: int
    ) -> None:
        stamp = self.tick()
        old = self.jobs.get((topic, id_))
        record = records.push(
            stamp,
            topic=topic,
            id_=id_,
            body=b"%d" % stamp,
            due_ms=self.now + delay,
            absolute=False,
            priority=priority,
            timeout_ms=0,
            key="",
            on_duplicate=how,
        )
        code = self.write(writer, record)
        if old is not None and how and not old.closed:
            assert code is (Code.KEPT if how == 1 else Code.REJECTED)
            return
        assert code is (Code.REPLACED if old else Code.CREATED)
        version = Version(stamp, writer, len(self.logs[writer].records))
        self.jobs[topic, id_] = Known(version, self.now + delay)

    def found(self, topic: str, id_: str) -> tuple[StoredJob, str] | None:
        return self.do(self.store.find(self.bucket, topic, id_))  # type: ignore[no-any-return]

    @rule(topic=st.sampled_from(TOPICS), id_=st.sampled_from(IDS), writer=st.sampled_from(SERVERS))
    def cancel(self, topic: str, id_: str, writer: bytes) -> None:
        found, known = self.found(topic, id_), self.jobs.get((topic, id_))
        assert (found is None) == (known is None)
        if found is None or known is None:
            return
        code = self.write(writer, records.cancel(self.tick(), found[0]))
        if found[1] == "running":
            assert code is Code.RUNNING
            known.closed = True
        else:
            assert code is Code.CANCELLED
            self.finish((topic, id_))

    @rule(
        topic=st.sampled_from(TOPICS),
        id_=st.sampled_from(IDS),
        writer=st.sampled_from(SERVERS),
        delay=st.integers(-100, 5_000),
    )
    def move(self, topic: str, id_: str, writer: bytes, delay: int) -> None:
        found = self.found(topic, id_)
        if found is None:
            return
        code = self.write(writer, records.move(self.tick(), found[0], self.now + delay))
        if found[1] == "running":
            assert code is Code.BUSY
        else:
            assert code is Code.MOVED
            self.jobs[topic, id_].due = self.now + delay

    @rule(ms=st.integers(1, 3_000))
    def advance(self, ms: int) -> None:
        self.now += ms

    @rule()
    def forward(self) -> None:
        _, next_ms = self.do(self.store.forward(self.bucket, self.now))
        waiting = [job.due for job in self.jobs.values() if job.due > self.now and not job.token]
        parked = self.client.zrange(self.bucket.keys[2], 0, 0, withscores=True)
        assert next_ms == (int(parked[0][1]) - self.now if parked else -1)
        assert not waiting or (next_ms >= 0 and self.now + next_ms <= min(waiting))

    @rule(consumer=st.sampled_from(CONSUMERS), want=st.integers(1, 8), is_heard=st.booleans())
    def lease(self, consumer: bytes, want: int, is_heard: bool) -> None:
        """Not `is_heard`: the answer is lost on its way to the consumer."""
        for known in self.jobs.values():
            if known.token and not known.closed and self.is_unheard(consumer, known.token):
                known.token = None
        high = [(writer, len(log.records)) for writer, log in self.logs.items() if log.records]
        first = self.tokens + 1
        self.tokens += want
        leased = self.do(
            self.store.lease(
                self.bucket,
                consumer,
                first,
                want,
                last_token=self.heard[consumer],
                high=high,
                lease_ms=LEASE_MS,
                now_ms=self.now,
            )
        )
        assert leased.state == "OK"
        for token, job in leased.jobs:
            known = self.jobs[job.topic, job.id]
            assert known.version == job.version, "an old version was handed out"
            assert known.token is None, "a job was handed out twice"
            assert known.due <= self.now, "a job was handed out early"
            assert known.retries == job.retries
            known.token = token
            if is_heard:
                self.held.append(Held((job.topic, job.id), token, job, consumer))
                self.heard[consumer] = int.from_bytes(token[8:], "big")

    def is_unheard(self, consumer: bytes, token: bytes) -> bool:
        return token[:8] == consumer and int.from_bytes(token[8:], "big") > self.heard[consumer]

    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)), delay=st.integers(0, 4_000))
    def settle(self, data: st.DataObject, verdict: Verdict, delay: int) -> None:
        if not self.held:
            return
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        known = self.jobs.get(held.name)
        is_ours = known is not None and known.version == held.job.version
        is_ours = is_ours and self.is_good(known, held)
        due = self.now + delay if verdict is Verdict.RETRY else 0
        record = records.settle(self.tick(), held.job, held.token, verdict, due, [])
        code = self.write(held.consumer, record)
        if not is_ours or known is None:
            # Of a job that is gone it may count: for all the bucket knows, it was lost here.
            assert code in (Code.STALE, Code.CHANGED, Code.ABSENT) or (
                known is None and code in (Code.SETTLED, Code.CANCELLED)
            )
            return
        is_retry = verdict is Verdict.RETRY and not known.closed
        was_cancelled = known.closed and verdict is not Verdict.DONE
        assert code is (Code.CANCELLED if was_cancelled else Code.SETTLED)
        if is_retry:
            known.retries, known.due, known.token, known.losses = known.retries + 1, due, None, 0
        else:
            self.finish(held.name)

    def is_good(self, known: Known | None, held: Held) -> bool:
        assert known is not None
        if known.token == held.token:
            return True
        return known.token is None and not known.losses and known.retries == held.job.retries

    def finish(self, name: tuple[str, str]) -> None:
        self.finished.add(self.jobs.pop(name).version.key)

    @rule(consumer=st.sampled_from([b"", *CONSUMERS]))
    def rescue(self, consumer: bytes) -> None:
        if not consumer:
            self.now += HEIRS_LEASE_MS
        first = self.tokens + 1
        self.tokens += 100
        call = {"consumer": consumer, "most_losses": 1_000, "now_ms": self.now}
        rescued = self.do(self.store.rescue(self.bucket, HEIR, first, **call))
        to_settle = {(job.topic, job.id): (token, job) for token, job in rescued.poisoned}
        for name, known in self.jobs.items():
            if not known.token or (consumer and known.token[:8] != consumer):
                continue
            known.token = None
            if known.closed:  # no retry: the heir has it now, to settle it
                known.token, job = to_settle.pop(name)
                self.held.append(Held(name, known.token, job, HEIR))
            else:
                known.losses += 1
        assert not to_settle

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if not self.held:
            return
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        lease = (digest_of(*held.name), held.token)
        kept = self.do(self.store.give_back(self.bucket, [lease], self.now))
        known = self.jobs.get(held.name)
        if known is not None and known.token == held.token:
            assert kept == 1
            if not known.closed:  # else its lease has run out, for the heir
                known.token = None

    @rule()
    def remember(self) -> None:
        """What a replica has, or the disk of a node."""
        self.snapshot = {key: self.client.dump(key) for key in self.client.keys("{dq*")}

    @rule(seed=st.integers(0, 1 << 30))
    def lose(self, seed: int) -> None:
        """The node falls back to what was remembered; all logs are sent again, in any order."""
        if self.snapshot is None:
            return
        for key in self.client.keys("{dq*"):
            self.client.delete(key)
        for key, value in self.snapshot.items():
            self.client.restore(key, 0, value)
        for consumer in CONSUMERS:
            given = int(self.client.hget(self.bucket.keys[0], b"l" + consumer) or 0)
            self.heard[consumer] = min(self.heard[consumer], given)
        self.resend(random.Random(seed))
        self.meet_cancelled()
        for name, known in list(self.jobs.items()):
            found = self.found(*name)
            if found is None and known.closed:  # cancelled while it ran; its lease was lost
                self.finish(name)
                continue
            assert found is not None, f"{name} was lost"
            job, state = found
            assert (job.version, job.retries) == (known.version, known.retries)
            assert job.due_ms == known.due
            crashes = self.client.hget(self.bucket.keys[11], digest_of(*name))
            known.losses = int(crashes or 0)
            known.token = self.token_of(name) if state == "running" else None

    def meet_cancelled(self) -> None:
        """A lease that had ended came back before its job was cancelled again: it must run out."""
        for raw in self.client.hvals(self.bucket.keys[1]):
            job = records.unpack_job(raw)
            name = (job.topic, job.id)
            if name not in self.jobs and job.is_closed:
                token = self.token_of(name)
                self.jobs[name] = Known(job.version, job.due_ms, job.retries, True, token)
                self.finished.discard(job.version.key)

    def resend(self, chance: random.Random) -> None:
        at = {writer: self.position(writer) for writer, log in self.logs.items() if log.records}
        todo = {writer for writer in at if at[writer] < len(self.logs[writer].records)}
        for _ in range(10_000):
            if not todo:
                return
            writer = chance.choice(sorted(todo))
            log = self.logs[writer].records
            end = min(len(log), at[writer] + chance.randint(1, 5))
            answer = self.do(
                self.store.apply(
                    self.bucket,
                    writer,
                    at[writer] + 1,
                    log[at[writer] : end],
                    flags="r",
                    now_ms=self.now,
                )
            )
            assert answer.state in ("OK", "WAIT")
            at[writer] = answer.position
            if at[writer] == len(log):
                todo.discard(writer)
        raise AssertionError("records wait for each other for ever")

    def position(self, writer: bytes) -> int:
        return int(self.client.hget(self.bucket.keys[0], b"h" + writer) or 0)

    def token_of(self, name: tuple[str, str]) -> bytes:
        raw = self.client.hget(self.bucket.keys[8], digest_of(*name))
        return holder_of(raw).token

    @invariant()
    def adds_up(self) -> None:
        """One place for each job, nothing else anywhere."""
        keys, client = self.bucket.keys, self.client
        places: dict[bytes, list[str]] = {digest_of(*name): [] for name in self.jobs}
        for digest in client.zrange(keys[2], 0, -1):
            places[digest].append("due")
        for member in client.zrange(keys[3], 0, -1):
            places[member[-8:]].append("ready")
        holders = client.hgetall(keys[8])
        assert set(holders) == set(client.zrange(keys[7], 0, -1))
        for name, known in self.jobs.items():
            digest = digest_of(*name)
            is_held = digest in holders
            if known.token:
                assert is_held and not places[digest], name
            else:
                assert len(places[digest]) + is_held >= 1, f"{name} stands nowhere"
                assert len(places[digest]) <= 1, name
        assert client.hlen(keys[1]) == len(self.jobs)
        in_flight: dict[bytes, int] = {}
        for raw in holders.values():
            topic = holder_of(raw).topic
            in_flight[b"n" + topic] = in_flight.get(b"n" + topic, 0) + 1
        assert {key: int(value) for key, value in client.hgetall(keys[10]).items()} == in_flight

    @invariant()
    def nothing_rises_from_the_dead(self) -> None:
        for raw in self.client.hvals(self.bucket.keys[1]):
            assert records.unpack_job(raw).version.key not in self.finished


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[Valkey]:
    server = Valkey().start()
    yield server
    server.stop()


@pytest.mark.time_limit(300)
def test_the_store_agrees_with_the_model(own_valkey: Valkey) -> None:
    Queue.valkey = own_valkey
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
