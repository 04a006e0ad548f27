"""A desk with one bucket on it: writers whose records are numbered, consumers whose tokens are, a
clock that the test turns, and a look at the whole keyspace in readable words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

from dq.queue import records
from dq.queue.keys import BUCKET_KEYS, NODE_KEY, bucket_keys
from dq.queue.nodes import Bucket
from dq.queue.records import Code, StoredJob, Verdict, digest_of
from dq.queue.store import Applied, Leased, Rescued, Store

T0 = 1_900_000_000_000
A, B = b"writer-A", b"writer-B"
C, D, HEIR = b"consumeC", b"consumeD", b"the-heir"
REPLACE, KEEP, REJECT = range(3)


@dataclass
class Held:
    """A lease as its consumer remembers it."""

    consumer: bytes
    token: bytes
    job: StoredJob

    @property
    def lease(self) -> tuple[bytes, bytes]:
        return digest_of(self.job.topic, self.job.id), self.token


class Holder(NamedTuple):
    """A lease as its bucket remembers it; `version`: as `Version.key`, without its first byte."""

    token: bytes
    version: bytes
    topic: bytes


def holder_of(raw: bytes) -> Holder:
    return Holder(raw[:16], raw[16:31], raw[31:])


class Desk:
    """All times are milliseconds after T0, all calls are made at `now`."""

    def __init__(self, bucket: Bucket, client: redis.Redis) -> None:
        self.bucket = bucket
        self.client = client
        self.store = Store()
        self.now = 0
        self.stamp = T0 * 1000
        self.last_heard: dict[bytes, int] = {}
        self.sent: dict[bytes, list[bytes]] = {}
        self.tokens = 0

    def next_stamp(self) -> int:
        self.stamp = max(self.stamp + 1, (T0 + self.now) * 1000)
        return self.stamp

    # What writers do

    async def apply(
        self,
        writer: bytes,
        *wanted: list[Any] | bytes,
        flags: str = "",
        first: int | None = None,
    ) -> Applied:
        """The next records of a writer, or again those from `first` on."""
        log = self.sent.setdefault(writer, [])
        payloads = [one if isinstance(one, bytes) else records.pack(one) for one in wanted]
        begin = len(log) + 1 if first is None else first
        answer = await self.store.apply(
            self.bucket, writer, begin, payloads, flags=flags, now_ms=T0 + self.now
        )
        if answer.state in ("OK", "WAIT") and answer.position > len(log):
            log.extend(payloads[len(log) + 1 - begin :][: answer.position - len(log)])
        return answer

    async def write(self, record: list[Any], writer: bytes = A, flags: str = "") -> Code:
        """One more record of a writer; what became of it."""
        answer = await self.apply(writer, record, flags=flags)
        assert (answer.state, len(answer.codes)) == ("OK", 1), answer
        return Code(answer.codes[0])

    def push_record(
        self,
        id_: str = "1",
        due: int = 1_000,
        *,
        topic: str = "t",
        body: bytes = b"1",
        how: int = REPLACE,
        absolute: bool = False,
        priority: int = 1,
        stamp: int | None = None,
    ) -> list[Any]:
        return records.push(
            stamp or self.next_stamp(),
            topic=topic,
            id_=id_,
            body=body,
            due_ms=T0 + due,
            absolute=absolute,
            priority=priority,
            timeout_ms=0,
            key="",
            on_duplicate=how,
        )

    async def push(
        self, id_: str = "1", due: int = 1_000, *, writer: bytes = A, **more: Any
    ) -> Code:
        return await self.write(self.push_record(id_, due, **more), writer)

    async def push_many(self, ids: Sequence[str], due: int = 0, **more: Any) -> None:
        for begin in range(0, len(ids), 200):
            part = [self.push_record(id_, due, **more) for id_ in ids[begin : begin + 200]]
            answer = await self.apply(A, *part)
            assert set(answer.codes) <= {Code.CREATED, Code.REPLACED}, answer

    async def job(self, id_: str = "1", topic: str = "t") -> StoredJob:
        found = await self.store.find(self.bucket, topic, id_)
        assert found is not None, f"{topic}/{id_} is not here"
        return found[0]

    async def cancel(self, id_: str = "1", writer: bytes = A, topic: str = "t") -> Code:
        return await self.write(
            records.cancel(self.next_stamp(), await self.job(id_, topic)), writer
        )

    async def move(self, due: int, id_: str = "1", writer: bytes = A) -> Code:
        return await self.write(
            records.move(self.next_stamp(), await self.job(id_), T0 + due), writer
        )

    def settle_record(self, held: Held, verdict: Verdict, due: int = 0) -> list[Any]:
        due_ms = T0 + due if verdict is Verdict.RETRY else 0
        return records.settle(self.next_stamp(), held.job, held.token, verdict, due_ms, [])

    async def settle(
        self, held: Held, verdict: Verdict = Verdict.DONE, due: int = 0, flags: str = ""
    ) -> Code:
        return await self.write(self.settle_record(held, verdict, due), held.consumer, flags)

    # What timers, consumers and the heir do

    async def forward(self, limit: int = 500) -> tuple[int, int]:
        return await self.store.forward(self.bucket, T0 + self.now, limit)

    async def ask_lease(self, want: int = 1, consumer: bytes = C, **more: Any) -> Leased:
        first = self.tokens + 1
        self.tokens += want
        last = {"last_token": self.last_heard.get(consumer, 0), **more}
        leased = await self.store.lease(
            self.bucket, consumer, first, want, now_ms=T0 + self.now, **last
        )
        if leased.jobs:
            self.last_heard[consumer] = int.from_bytes(leased.jobs[-1][0][8:], "big")
        return leased

    async def lease(self, want: int = 1, consumer: bytes = C, **more: Any) -> list[Held]:
        leased = await self.ask_lease(want, consumer, **more)
        assert leased.state == "OK", leased
        assert len(leased.jobs) <= want
        return [Held(consumer, token, job) for token, job in leased.jobs]

    async def give_back(self, *held: Held) -> int:
        return await self.store.give_back(self.bucket, [one.lease for one in held], T0 + self.now)

    async def rescue(self, consumer: bytes = b"", **more: Any) -> Rescued:
        first = self.tokens + 1
        self.tokens += 100
        return await self.store.rescue(
            self.bucket, HEIR, first, consumer=consumer, now_ms=T0 + self.now, **more
        )

    async def limit(self, revision: int, **topics: tuple[int, int, float]) -> bool:
        return await self.store.limit(self.bucket, revision, topics)

    async def bring(self, state: str) -> Held | None:
        """Job t/1 into one of the states that a job can be in, all within the first 10 ms."""
        held = None
        if state == "absent":
            return None
        await self.push(due=1_000 if state == "delayed" else 0, body=b"old")
        if state not in ("delayed", "ready"):
            (held,) = await self.lease()
        if state == "closed":
            assert await self.cancel() is Code.RUNNING
        elif state == "retrying" and held:
            assert await self.settle(held, Verdict.RETRY, 1_000) is Code.SETTLED
        elif state == "finished" and held:
            assert await self.settle(held) is Code.SETTLED
        elif state == "waiting":  # for the attempt of an older version to end
            assert await self.push(due=0, body=b"newer") is Code.REPLACED
        return held

    # A look at the keyspace

    def raw(self, key: str) -> Any:
        return read_key(self.client, self.bucket.keys[BUCKET_KEYS.index(key)])

    def jobs(self) -> dict[bytes, StoredJob]:
        return {d: records.unpack_job(raw) for d, raw in (self.raw("jobs") or {}).items()}

    def places(self) -> dict[str, str]:
        """topic/id of each unfinished job -> the places where it stands, with the due time."""
        due, leases = self.raw("due") or {}, self.raw("leases") or {}
        ready = {member[-8:] for member in self.raw("ready") or ()}
        found = {}
        for digest, job in self.jobs().items():
            words = [f"delayed {int(due[digest]) - T0:+}"] if digest in due else []
            words += ["ready"] if digest in ready else []
            words += [self._hand(digest, job)] if digest in leases else []
            found[f"{job.topic}/{job.id}"] = " & ".join(words)
        return found

    def place(self, id_: str = "1", topic: str = "t") -> str:
        return self.places().get(f"{topic}/{id_}", "gone")

    def _hand(self, digest: bytes, job: StoredJob) -> str:
        raw = (self.raw("holders") or {}).get(digest)
        if raw is None:
            return "lease without holder"
        is_this = holder_of(raw).version == job.version.key[1:]
        return "running" if is_this else "older runs"

    def keyspace(self) -> dict[str, Any]:
        """Every key of the node and what it holds."""
        return {key.decode(): read_key(self.client, key.decode()) for key in self.client.keys("*")}

    def standing(self) -> dict[str, Any]:
        """All of it but the positions of writers: what a refused record leaves as it was."""
        return {name: held for name, held in self.keyspace().items() if not name.endswith("meta")}

    def check(self) -> None:
        """What holds between any two calls: known keys, one place for each job, counts that add
        up."""
        known = {NODE_KEY, *(key for number in range(2) for key in bucket_keys(number))}
        assert {key.decode() for key in self.client.keys("*")} <= known
        due, ready = self.raw("due") or {}, self.raw("ready") or {}
        leases, holders = self.raw("leases") or {}, self.raw("holders") or {}
        assert set(leases) == set(holders)
        waiting = [*due, *(member[-8:] for member in ready)]
        assert len(waiting) == len(set(waiting)), "a job waits in two places"
        in_flight: dict[bytes, int] = {}
        for raw in holders.values():
            topic = holder_of(raw).topic
            in_flight[b"n" + topic] = in_flight.get(b"n" + topic, 0) + 1
        gauges = {k: int(v) for k, v in (self.raw("gauges") or {}).items() if k[:1] == b"n"}
        assert gauges == in_flight
        for digest, job in self.jobs().items():
            is_held = digest in holders
            assert is_held or digest in waiting, f"{job.topic}/{job.id} stands nowhere"
            assert digest_of(job.topic, job.id) == digest
        assert set(waiting) <= set(self.jobs()), "what waits is no job"


def read_key(client: redis.Redis, key: str) -> Any:
    """What a key holds, as Python has it; None when it is not there."""
    kind = client.type(key).decode()
    if kind == "hash":
        return client.hgetall(key)
    if kind == "zset":
        return dict(client.zrange(key, 0, -1, withscores=True))
    if kind == "list":
        return client.lrange(key, 0, -1)
    return client.get(key) if kind == "string" else None
