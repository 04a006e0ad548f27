"""Every named crash point, struck in every way, while jobs are in every state they can be in there.

What dies, fails or stands still is replaced as its master would; then every acknowledged job is
called back as often as was promised, no job is in two states, and the journal tells each change
once. A failure names point, kind and round; `-k 'write.synced and die'` runs one alone. The world
is used again by the next case, and made anew after a failure.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dq.core.faults import KINDS, POINTS
from dq.queue.records import digest_of
from tests.chaos.ledger import CALLED, IN_HAND, STATES, Case
from tests.chaos.stage import KEEP_MS, PATIENCE_S, World, answer_of, body_of, outcome_of, version_of
from tests.support import wait_until


class Worlds:
    """The world that is there, or a new one."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._world: World | None = None

    def get(self) -> World:
        if self._world is None:
            self._world = World(self._factory.mktemp("world"))
        return self._world

    def drop(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    found = Worlds(tmp_path_factory)
    yield found
    found.drop()


@pytest.fixture
def case(worlds: Worlds, request: pytest.FixtureRequest) -> Iterator[Case]:
    world = worlds.get()
    world.ensure()
    found = Case(world, re.sub(r"\W+", "-", request.node.name))
    yield found
    if not found.is_settled:
        print(found.tale())
        for error in world.errors()[-20:]:
            print(error["t"], error["process"], error["pid"], error["message"])
            print(error.get("exception", "")[-1500:])
        worlds.drop()


def cases(points: list[str]) -> pytest.MarkDecorator:
    every = [pytest.param(p, k, id=f"{p}-{k}") for p in points for k in KINDS]
    return pytest.mark.parametrize(("point", "kind"), every)


def take_over(case: Case, role: str, point: str, kind: str) -> None:
    """The fault strikes, and a new process takes over unless the old one goes on."""
    if not case.world.survives(role, point, kind):
        case.world.spawn(role)


# A producer's calls

CHANGES = {
    "cancel": ("delayed", "ready", "running", "closed", "waiting", "retrying"),
    "move": ("delayed", "ready", "running", "closed", "waiting", "retrying"),
}
WRITING = ["write.appended", "write.synced", "write.applied", "write.counted"]
PUSHING = ["push.validated", *WRITING, "push.answered"]


@cases(PUSHING)
def test_a_push_meets_a_job_in_every_state(case: Case, point: str, kind: str) -> None:
    world = case.world
    case.stage({f"push.{state}": state for state in STATES})
    docs = [case.doc(f"push.{state}", body_of("new"), case.far) for state in STATES]
    world.kill("server")
    answer = world.begin("POST", "/v1/jobs/batch", {"jobs": docs})
    world.spawn("server", f"{point}={kind}")
    take_over(case, "server", point, kind)
    reply = answer_of(answer)
    results = reply.json["results"] if reply else [{"status": 0}] * len(docs)
    for doc, result in zip(docs, results, strict=True):
        if result["status"] not in (200, 201):
            world.insist("POST", "/v1/jobs", doc, 200, 201)
    for state in STATES:
        owe_after_push(case, f"push.{state}", state)
    case.settle_up()


def owe_after_push(case: Case, label: str, state: str) -> None:
    """The new version is called once, and the old one as far as its call was begun before."""
    ends = {"new": "DONE"}
    if state != "absent":
        ends["old"] = {"closed": "CANCELLED", "done": "DONE"}.get(state, "REPLACED")
    if state == "waiting":
        ends["next"] = "REPLACED"
    before = ["-old1"] if state in IN_HAND else []
    before += ["old1"] if state in ("retrying", "done") else []
    case.owe(label, [*before, "new1"], **ends)


@cases([*WRITING, "write.noted"])
def test_a_change_meets_a_job_in_every_state(case: Case, point: str, kind: str) -> None:
    world = case.world
    labels = {f"{op}.{state}": state for op, states in CHANGES.items() for state in states}
    case.stage(labels)
    world.kill("server")
    sent = {label: begin_change(case, label) for label in labels}
    world.spawn("server", f"{point}={kind}")
    take_over(case, "server", point, kind)
    for label, connection in sent.items():
        reply = answer_of(connection)
        if reply is None or reply.status >= 500:
            world.insist(*change(case, label), 200, 201, 404, 409)
    for label, state in labels.items():
        owe_after_change(case, label, state)
    case.settle_up()


REPEATS = {f"again.{state}": state for state in ("delayed", "ready", "running", "waiting")}


@pytest.mark.xfail(
    reason="the heir applies a push that was never applied as if it had been", strict=True
)
@pytest.mark.parametrize(
    ("point", "kind"), [pytest.param("write.synced", "die", id="write.synced-die")]
)
def test_a_repeated_push_is_still_a_repetition(case: Case, point: str, kind: str) -> None:
    world = case.world
    case.stage(REPEATS)
    world.kill("server")
    answer = world.begin("POST", "/v1/jobs/batch", {"jobs": [case.docs[one] for one in REPEATS]})
    world.spawn("server", f"{point}={kind}")
    take_over(case, "server", point, kind)
    answer.close()
    for label, state in REPEATS.items():
        world.insist("POST", "/v1/jobs", case.docs[label], 200)
        case.owe(label, CALLED[state], old="REPLACED" if state == "waiting" else "DONE")
    case.settle_up()


def change(case: Case, label: str) -> tuple[str, str, Any]:
    op = label.partition(".")[0]
    if op == "cancel":
        return "DELETE", case.path(label), None
    if op == "move":
        return "PATCH", case.path(label), {"due": case.far + 5}
    raise AssertionError(label)


def begin_change(case: Case, label: str) -> http.client.HTTPConnection:
    return case.world.begin(*change(case, label))


def owe_after_change(case: Case, label: str, state: str) -> None:
    is_cancel = label.startswith("cancel")
    calls = list(CALLED[state])
    ends = {"old": "DONE"}
    if state == "waiting":
        ends["old"] = "REPLACED"
        ends["next"] = "DONE"
        if is_cancel:  # nobody is left that the old call could be confused with
            calls, ends = ["old1"], {"old": "DONE", "next": "CANCELLED"}
    elif is_cancel and state in ("delayed", "ready", "retrying"):
        calls = calls[:1] if state == "retrying" else []
        ends = {"old": "CANCELLED"}
    case.owe(label, calls, **ends)


# A consumer

OUTCOMES = {
    "ok": ("t", (200,)),
    "fail": ("t", (500, 200)),
    "dead": ("mortal", (500,)),
}
IN_FLIGHT = [
    *(f"{state}.{outcome}" for state in IN_HAND for outcome in OUTCOMES),
    "second.ok",
]
CALLING = ["call.after", *WRITING, "write.noted", "settle.applied"]


def make_ready(case: Case) -> None:
    """Jobs that a consumer will find: each has its state while its call is held."""
    case.stage({"second.ok": "retrying"})
    case.world.kill("consumer")
    docs = []
    for label in IN_FLIGHT[:-1]:
        topic, answers = OUTCOMES[label.partition(".")[2]]
        case.topics[label] = topic
        docs.append(case.doc(label, body_of("old", *answers, held=1)))
    case.world.push_all(docs)
    case.world.insist("PATCH", case.path("second.ok"), {"due": case.begun}, 200)
    wait_until(lambda: set(case.places().values()) == {"ready"}, PATIENCE_S, "all ready")


def call_all(case: Case) -> None:
    """All are called; then some are cancelled, and some replaced."""
    total = len(IN_FLIGHT) + 1
    wait_until(lambda: case.calls().total() == total, PATIENCE_S, "all called")
    for outcome in OUTCOMES:
        case.world.insist("DELETE", case.path(f"closed.{outcome}"), None, 200)
    case.world.push_all([case.doc(f"waiting.{one}", body_of("next")) for one in OUTCOMES])


def owe_after_calls(case: Case, lost: set[tuple[str, str]]) -> None:
    """`lost`: id and call of those whose process fell before the outcome was in its log."""
    for label in IN_FLIGHT:
        state, _, outcome = label.partition(".")
        first = "old2" if state == "second" else "old1"
        is_lost = (case.id(label), first) in lost
        is_next_lost = (case.id(label), "next1") in lost
        calls, ends = ["old1"], {"old": "DEAD" if outcome == "dead" else "DONE"}
        if state == "closed":
            ends = {"old": "DONE" if outcome == "ok" and not is_lost else "CANCELLED"}
        elif state == "waiting":
            calls, ends = ["-old1", "next1"], {"old": "REPLACED", "next": "DONE"}
        elif state == "second" or outcome == "fail":
            calls = ["old1", "old2"]
        case.owe(label, calls, **ends)
        if is_lost and state in ("running", "second"):
            case.owed[case.id(label), first] += 1
        if is_next_lost:
            case.owed[case.id(label), "next1"] += 1


def lost_calls(case: Case, pid: int, since: int) -> set[tuple[str, str]]:
    """Calls made by that process whose outcome is not in its log."""
    logged = case.world.outcomes_in(pid)
    calls = case.world.endpoint.of(f"{case.name}.")[since:]
    return {(call.id, version_of(call)) for call in calls if outcome_of(call) not in logged}


@cases(["lease.taken", "call.before", *CALLING])
def test_a_consumer_meets_an_attempt_in_every_state(case: Case, point: str, kind: str) -> None:
    world = case.world
    make_ready(case)
    since = case.calls().total()
    pid = world.spawn("consumer", f"{point}={kind}")
    is_before = point in ("lease.taken", "call.before")
    if not is_before:
        call_all(case)
        world.endpoint.let_go()
    if world.survives("consumer", point, kind):
        if is_before:
            wait_until(lambda: case.calls().total() == len(IN_FLIGHT), PATIENCE_S, "the others")
            world.expire_leases()
            call_all(case)
            world.endpoint.let_go()
        held = 1 if point == "call.after" else 0
        wait_until(lambda: world.client.hlen("{dq0}:holders") == held, PATIENCE_S, "the others")
        lost = lost_calls(case, pid, since)
        world.expire_leases()
    else:
        lost = lost_calls(case, pid, since)
        world.spawn("consumer")
        if is_before:
            call_all(case)
            lost = set()
    owe_after_calls(case, lost)
    case.settle_up()


# The timer


@cases(["forward.before", "forward.after"])
def test_the_timer_meets_what_comes_due(case: Case, point: str, kind: str) -> None:
    world = case.world
    case.stage({"second": "retrying", "far": "delayed", "moved": "delayed", "waiting": "waiting"})
    world.kill("timer")
    case.due = dict.fromkeys(("second", "moved", "fresh"), int(time.time() * 1000) + 100)
    for label in ("second", "moved"):
        world.insist("PATCH", case.path(label), {"due": case.due[label]}, 200)
    world.push_all([case.doc("fresh", body_of("old"), case.due["fresh"])])
    world.spawn("timer", f"{point}={kind}")
    take_over(case, "timer", point, kind)
    case.owe("second", CALLED["retrying"], old="DONE")
    case.owe("waiting", CALLED["waiting"], old="REPLACED", next="DONE")
    for label in ("far", "moved", "fresh"):
        case.owe(label, ["old1"], old="DONE")
    case.settle_up()


# The journal

SHIPPING = ["journal.read", "journal.stored", "journal.committed", "journal.written"]
REMOVING = ["journal.dropped", "journal.retired", "journal.closed", "journal.removed"]


@cases([*SHIPPING, "journal.told", *REMOVING])
def test_the_journal_meets_every_kind_of_record(case: Case, point: str, kind: str) -> None:
    world = case.world
    world.kill("journal")
    case.stage({state: state for state in STATES if state != "absent"})
    docs = [case.doc(f"bulk{n}", body_of("old", pad=500)) for n in range(12)]
    case.topics["dead"] = "mortal"
    world.push_all([*docs, case.doc("dead", body_of("old", 500))])
    world.push_all([case.doc("delayed", body_of("new"), case.far)])
    world.insist("DELETE", case.path("ready"), None, 200)
    wait_until(lambda: "dead" not in case.places(), PATIENCE_S, "dead")
    if point != "journal.dropped":
        world.spawn("server")
    world.spawn("journal", f"{point}={kind}", keep_ms=0 if point in REMOVING else KEEP_MS)
    take_over(case, "journal", point, kind)
    case.owe("dead", ["old1"], old="DEAD")
    case.owe("delayed", ["new1"], old="REPLACED", new="DONE")
    case.owe("ready", [], old="CANCELLED")
    for label in (*(f"bulk{n}" for n in range(12)), "running", "closed", "retrying", "done"):
        case.owe(label, CALLED.get(label, ["old1"]), old="DONE")
    case.owe("waiting", CALLED["waiting"], old="REPLACED", next="DONE")
    case.settle_up()


# The heir of the dead

INHERITING = ["heir.found", "heir.applied", "heir.rescued", "heir.held", "heir.buried"]


@cases([*INHERITING, *WRITING])
def test_the_heir_meets_what_the_dead_left(case: Case, point: str, kind: str) -> None:
    world = case.world
    make_ready(case)
    since = case.calls().total()
    pid = world.spawn("consumer")
    call_all(case)
    world.kill("journal")
    world.client.hset("{dq0}:crashes", digest_of("t", case.id("running.fail")), 2)
    world.kill("server")
    docs = [case.doc(f"push.{n}", body_of("new"), case.far) for n in range(5)]
    answer = world.begin("POST", "/v1/jobs/batch", {"jobs": docs})
    world.spawn("server", "write.synced=die")
    assert not world.survives("server", "write.synced", "die")
    answer.close()
    world.kill("consumer")
    world.spawn("journal", f"{point}={kind}")
    take_over(case, "journal", point, kind)
    owe_after_calls(case, lost_calls(case, pid, since))
    poisoned = case.id("running.fail")
    del case.owed[poisoned, "old2"]
    case.owed[poisoned, "old1"] = 1
    case.told.discard((poisoned, "old2"))
    case.ends[poisoned] = {"old": "DEAD"}
    for n in range(5):
        case.owe(f"push.{n}", ["new1"], new="DONE")
    case.settle_up()


# A node that lost everything

RESTORING = ["restore.found", "restore.begun", "restore.shipped", "restore.placed"]
RESTORED = ["restore.declared", "restore.streamed", "restore.ready"]


@cases([*RESTORING, *RESTORED])
def test_a_restore_meets_a_job_in_every_state(case: Case, point: str, kind: str) -> None:
    world = case.world
    case.stage({state: state for state in STATES})
    world.kill("redis-checker")
    world.client.flushall()
    world.spawn("redis-checker", f"{point}={kind}")
    take_over(case, "redis-checker", point, kind)
    wait_until(lambda: world.client.hget("{dq0}:meta", "state") == b"ready", PATIENCE_S, "restored")
    for state in STATES:
        old = {} if state == "absent" else {"old": "DONE"}
        if state == "waiting":
            old = {"old": "REPLACED", "next": "DONE"}
        case.owe(state, CALLED[state], **old)
    case.settle_up()


def test_every_point_is_struck() -> None:
    covered = {*PUSHING, "write.noted", "lease.taken", "call.before", *CALLING, "forward.before"}
    covered |= {"forward.after", *SHIPPING, "journal.told", *REMOVING, *INHERITING}
    assert covered | {*RESTORING, *RESTORED} == set(POINTS)
