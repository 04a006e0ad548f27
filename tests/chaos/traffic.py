"""Jobs that flow whatever happens, and the reckoning: lost, early, repeated, resurrected.

Each job's id says what is to become of it: `ok-` succeeds at once, `again-` at its second attempt,
`cancel-` is cancelled right after its push. The receiver lives in the test, so what it saw outlives
everything that is done to dq.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

from tests.e2e.program import Program
from tests.e2e.receiver import Call, Receiver
from tests.support import wait_until

SETTLED_AFTER_MS = 2_000
"""An outcome is synced within 50 ms on an idle machine; this is allowed for a disk that is shared
with two other test processes and their databases."""
ARRIVES_LATE_MS = 250
"""A request that was sent just before its process was killed may be read after that."""
ON_TIME_MS = 250


def answer(call: Call) -> tuple[int, bytes]:
    """What the receiver says."""
    fails = call.id.startswith("again-") and call.attempt == 1
    return (500, b"no") if fails else (200, b"ok")


def now_ms() -> float:
    return time.time() * 1000


@dataclass
class Fault:
    """Something that was done to dq. `is_ours`: its own processes died, so that what was in flight
    may be called again."""

    name: str
    is_ours: bool
    began_ms: float = field(default_factory=now_ms)
    over_ms: float = 0.0

    def end(self) -> None:
        self.over_ms = now_ms()

    def may_repeat(self, call: Call) -> bool:
        """Whether that call's outcome may have been lost in it."""
        earliest = self.began_ms - SETTLED_AFTER_MS
        latest = (self.over_ms or now_ms()) + ARRIVES_LATE_MS
        return self.is_ours and earliest <= call.at_ms <= latest


@dataclass
class Reckoning:
    """All counted, by job except where it says otherwise."""

    acknowledged: int = 0
    delivered: int = 0
    lost: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    duplicates: int = 0
    """calls that were made again because what they had brought was lost in a fault"""
    oldest_repeated_ms: float = 0.0
    """how long before its fault the oldest of the calls that were repeated had begun"""
    pushed_twice: int = 0
    """calls made again as the producer, not knowing the outcome, pushed again after the first"""
    heal_s: dict[str, list[float]] = field(default_factory=dict)


class Traffic:
    """Pushes from some threads until `stop`, each push repeated until it is acknowledged."""

    def __init__(
        self,
        dq: Program,
        receiver: Receiver,
        topic: str,
        *,
        seed: int,
        threads: int = 2,
        ahead_s: float = 3.0,
        pause_s: float = 0.001,
        has_cancels: bool = True,
    ) -> None:
        """Due times are up to `ahead_s` ahead; `pause_s` lies between two pushes of a thread."""
        self._dq = dq
        self._receiver = receiver
        self._topic = topic
        self._ahead_s = ahead_s
        self._pause_s = pause_s
        self._shares = [85, 10, 5 * has_cancels]
        self._is_over = threading.Event()
        self.begun: dict[str, float] = {}
        self.acknowledged: dict[str, float] = {}
        self.cancelled: set[str] = set()
        self.repeated: set[str] = set()
        """pushed more than once, as the outcome was unknown: the first may have been called"""
        self.due: dict[str, int] = {}
        self.faults: list[Fault] = []
        self._threads = [
            threading.Thread(target=self._push_on, args=(f"{seed}.{number}",), daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def fault(self, name: str, *, is_ours: bool) -> Fault:
        """Note that a fault begins now."""
        self.faults.append(Fault(name, is_ours))
        return self.faults[-1]

    def wait_pushed(self, more: int, timeout_s: float = 40) -> None:
        """Until so many more are acknowledged."""
        wanted = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= wanted, timeout_s, f"{more} more pushes")

    def stop(self, timeout_s: float = 60) -> None:
        """No new jobs; those under way are acknowledged still."""
        self._is_over.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "a push is not acknowledged"

    def _push_on(self, name: str) -> None:
        rng = random.Random(name)
        connection = http.client.HTTPConnection("127.0.0.1", self._dq.api_port, timeout=5)
        number = 0
        while not self._is_over.is_set():
            kind = rng.choices(["ok", "again", "cancel"], self._shares)[0]
            id_ = f"{kind}-{name}-{number}"
            ahead_s = self._ahead_s if kind == "cancel" else rng.random() * self._ahead_s
            self.begun[id_] = now_ms()
            due = int(self.begun[id_] + ahead_s * 1000)
            self.due[id_] = due
            doc = {"topic": self._topic, "id": id_, "body": number, "due": due}
            while _call(connection, "POST", "/v1/jobs", doc) not in (200, 201):
                self.repeated.add(id_)
                time.sleep(0.02)
            self.acknowledged[id_] = now_ms()
            if kind == "cancel":
                self._cancel(connection, id_)
            number += 1
            time.sleep(self._pause_s)
        connection.close()

    def _cancel(self, connection: http.client.HTTPConnection, id_: str) -> None:
        path = f"/v1/jobs/{self._topic}/{id_}"
        while (status := _call(connection, "DELETE", path)) not in (200, 404):
            time.sleep(0.02)
        # Not found after an outcome unknown: it was cancelled, or it was late and ran. Late ones
        # that ran before the answer came prove nothing.
        if now_ms() < self.due[id_]:
            self.cancelled.add(id_)
        assert status == 200 or id_ in self.cancelled or now_ms() >= self.due[id_]

    def wait_delivered(self, timeout_s: float = 40) -> None:
        """Until every acknowledged job has come as often as it should."""
        wait_until(lambda: not self.missing(), timeout_s, "every job called back")

    def wait_caught_up(self, timeout_s: float = 40) -> None:
        """Until no job that is acknowledged is late."""
        wait_until(
            lambda: not self.missing(overdue_ms=3 * ON_TIME_MS), timeout_s, "nothing is late"
        )

    def missing(self, overdue_ms: float | None = None) -> list[str]:
        """Acknowledged, not cancelled, and without a success so far; `overdue_ms`: only those that
        succeed at once and should have been called so long ago."""
        succeeded = {
            call.id for call in list(self._receiver.calls) if answer(call)[0] == 200
        } | self.cancelled
        found = [id_ for id_ in list(self.acknowledged) if id_ not in succeeded]
        if overdue_ms is None:
            return [id_ for id_ in found if not id_.startswith("cancel-")]
        latest = now_ms() - overdue_ms
        return [id_ for id_ in found if id_.startswith("ok-") and self.due[id_] < latest]

    def reckon(self) -> Reckoning:
        """The count of everything until now."""
        result = Reckoning(len(self.acknowledged), lost=self.missing())
        calls: dict[tuple[str, int], list[Call]] = defaultdict(list)
        for call in list(self._receiver.calls):
            calls[call.id, call.attempt].append(call)
            if call.at_ms < self.due[call.id]:
                result.early.append(call.id)
        result.delivered = len({id_ for id_, _ in calls})
        for (id_, attempt), made in calls.items():
            most = 2 if id_.startswith("again-") else 1
            if id_ in self.cancelled or attempt > most:
                result.resurrected.append(f"{id_}#{attempt}")
            self._reckon_repeats(result, made)
        result.heal_s = self._heal_s()
        return result

    def _reckon_repeats(self, result: Reckoning, made: list[Call]) -> None:
        if made[0].id in self.repeated:
            result.pushed_twice += len(made) - 1
            return
        for call in made[:-1]:
            result.duplicates += 1
            blamed = [one for one in self.faults if one.may_repeat(call)]
            if not blamed:
                result.resurrected.append(f"{call.id}#{call.attempt} {self._circumstances(made)}")
                continue
            age_ms = blamed[-1].began_ms - call.at_ms
            result.oldest_repeated_ms = max(result.oldest_repeated_ms, age_ms)

    def _circumstances(self, made: list[Call]) -> str:
        """When calls were made, in seconds after the fault before each."""
        told = []
        for call in made:
            before = [one for one in self.faults if one.began_ms <= call.at_ms]
            name = before[-1].name if before else "the start"
            since_ms = call.at_ms - (before[-1].began_ms if before else self.faults[0].began_ms)
            told.append(f"{since_ms / 1000:.3f} s after {name}")
        return "; ".join(told)

    def _heal_s(self) -> dict[str, list[float]]:
        """Per fault the seconds until jobs were on time again."""
        found: dict[str, list[float]] = defaultdict(list)
        late = sorted(
            call.at_ms
            for call in list(self._receiver.calls)
            if call.attempt == 1 and call.at_ms - self.due[call.id] > ON_TIME_MS
        )
        ends = [one.began_ms for one in self.faults[1:]] + [float("inf")]
        for fault, end in zip(self.faults, ends, strict=True):
            within = [at for at in late if fault.began_ms <= at < end]
            found[fault.name].append((within[-1] - fault.began_ms) / 1000 if within else 0.0)
        return found


def _call(
    connection: http.client.HTTPConnection, method: str, path: str, doc: object = None
) -> int:
    """The status, 0 when the outcome is unknown."""
    body = None if doc is None else json.dumps(doc)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0
    return reply.status
