"""One case of a crash: jobs brought into every state, and in the end what is owed for each of them,
compared with the calls that came, with Redis, with the journal and with the files for people."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from dq.db.rows import State
from dq.log.log import end_of_records
from tests.chaos.stage import PATIENCE_S, World, body_of, version_of
from tests.support import wait_until

FAR_S = 3_600
SOON_MS = 60
STATES = ("absent", "delayed", "ready", "running", "closed", "waiting", "retrying", "done")
CALLED = {
    "absent": (),
    "delayed": ("old1",),
    "ready": ("old1",),
    "running": ("old1",),
    "closed": ("old1",),
    "waiting": ("-old1", "next1"),
    "retrying": ("old1", "old2"),
    "done": ("old1",),
}
"""What comes of a job that nobody changes any more."""
IN_HAND = ("running", "closed", "waiting")
"""A call of the first version is under way: what comes of it is nobody's when it was replaced."""


class Case:
    """Jobs whose ids begin with the case's name. `owed`: calls by id, version and attempt."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.begun = int(time.time() * 1000)
        self.far = self.begun + FAR_S * 1000
        self.owed: Counter[tuple[str, str]] = Counter()
        self.told: set[tuple[str, str]] = set()
        self.ends: dict[str, dict[str, str]] = {}
        self.due: dict[str, int] = {}
        self.topics: dict[str, str] = {}
        self.docs: dict[str, dict[str, Any]] = {}
        self.is_settled = False

    def id(self, label: str) -> str:
        return f"{self.name}.{label}"

    def path(self, label: str) -> str:
        return f"/v1/jobs/{self.topics[label]}/{self.id(label)}"

    def doc(self, label: str, body: dict[str, Any], due: int | None = None) -> dict[str, Any]:
        """A push of a job, at the topic that its state wants; `due` None: about now."""
        topic = self.topics.setdefault(label, "t")
        due = self.begun if due is None else due
        self.docs[label] = {"topic": topic, "id": self.id(label), "body": body, "due": due}
        return self.docs[label]

    def owe(self, label: str, calls: Iterable[str], **ends: str) -> None:
        """These calls of a job, and how each of its versions ends in the journal. An attempt that
        was under way when its version was replaced leaves no line there: call it "-old1"."""
        for call in calls:
            self.owed[self.id(label), call.lstrip("-")] += 1
            if not call.startswith("-"):
                self.told.add((self.id(label), call))
        self.ends[self.id(label)] = ends

    # Bringing jobs into their states

    def stage(self, states: Mapping[str, str]) -> None:
        """A job under each label, in its state."""
        self.world.endpoint.hold()
        if "ready" in states.values():
            self._block_narrow_topic()
        for label, state in states.items():
            self.topics[label] = "narrow" if state == "ready" else "t"
        docs = [self._first_push(label, state) for label, state in states.items()]
        self.world.push_all([doc for doc in docs if doc])
        wait_until(lambda: self._is_staged(states), PATIENCE_S, f"staged {states}")
        self.world.push_all(
            [self.doc(one, body_of("next")) for one, state in states.items() if state == "waiting"]
        )
        for label, state in states.items():
            if state == "closed":
                self.world.insist("DELETE", self.path(label), None, 200)

    def _block_narrow_topic(self) -> None:
        """It has one slot: what is pushed to it after this one stays ready."""
        self.topics["block"] = "narrow"
        self.owe("block", ["old1"], old="DONE")
        self.world.push_all([self.doc("block", body_of("old", held=1))])
        wait_until(lambda: self.places().get("block") == "running", PATIENCE_S, "blocked")

    def _first_push(self, label: str, state: str) -> dict[str, Any] | None:
        if state == "absent":
            return None
        answers = (500, 200) if state == "retrying" else (200,)
        held = 2 if state == "retrying" else int(state in IN_HAND)
        body = body_of("old", *answers, held=held)
        return self.doc(label, body, self.far if state == "delayed" else None)

    def _is_staged(self, states: Mapping[str, str]) -> bool:
        places, called = self.places(), self.calls()
        for label, state in states.items():
            place = places.get(label, "gone").split(" ")[0]
            wanted = {"delayed": "delayed", "ready": "ready", "retrying": "delayed"}
            wanted |= dict.fromkeys(("absent", "done"), "gone")
            if place != wanted.get(state, "running"):
                return False
            is_called = bool(called[self.id(label), "old1"])
            if is_called != (state not in ("absent", "delayed", "ready")):
                return False
        return True

    # What stands

    def places(self) -> dict[str, str]:
        """Where each unfinished job of this case stands, by label."""
        found = {name.partition("/")[2]: place for name, place in self.world.unfinished().items()}
        start = f"{self.name}."
        return {id_[len(start) :]: at for id_, at in found.items() if id_.startswith(start)}

    def calls(self) -> Counter[tuple[str, str]]:
        calls = self.world.endpoint.of(f"{self.name}.")
        return Counter((call.id, version_of(call)) for call in calls)

    # The end

    def settle_up(self) -> None:
        """Let everything come to its end, and compare it with what is owed."""
        self.world.ensure()
        self.world.wait_at_rest()
        self.world.check_places()
        self.world.endpoint.let_go()
        try:
            wait_until(self._is_over, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"this never ends: {self.places()}") from None
        self.check_calls()
        self.check_journal()
        self.is_settled = True

    def _is_over(self) -> bool:
        places = self.places()
        for label, place in places.items():
            if place.startswith("delayed") and label not in self.due:
                self.due[label] = int(time.time() * 1000) + SOON_MS
                self.world.insist("PATCH", self.path(label), {"due": self.due[label]}, 200)
        return not places

    def check_calls(self) -> None:
        calls = self.calls()
        assert calls == self.owed, f"too many {calls - self.owed}, missing {self.owed - calls}"
        for label, due in self.due.items():
            last = [call for call in self.world.endpoint.calls if call.id == self.id(label)][-1]
            assert last.at_ms >= due, f"{label} was called {due - last.at_ms:.0f} ms early"

    def check_journal(self) -> None:
        """Each push and each change is in SQL once and in the files once."""
        try:
            wait_until(lambda: not self._behind(), PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"never shipped: {self._behind()}") from None
        messages, changes = self._rows()
        ends: dict[str, dict[str, str]] = defaultdict(dict)
        for row in messages:
            version = json.loads(row["body"])["v"]
            assert version not in ends[row["id"]], f"{row['id']}: {version} is there twice"
            ends[row["id"]][version] = State(row["state"]).name
        wanted_ends = {id_: end for id_, end in self.ends.items() if end}
        wrong = [
            (id_, ends.get(id_), wanted_ends.get(id_))
            for id_ in ends.keys() | wanted_ends.keys()
            if ends.get(id_) != wanted_ends.get(id_)
        ]
        assert not wrong, f"ended otherwise than wanted: {sorted(wrong)}"
        attempts = Counter(
            (row["id"], f"{json.loads(row['body'])['v']}{row['attempt']}")
            for row in changes
            if row["attempt"]
        )
        once = Counter(self.told)
        assert attempts == once, f"attempts twice {attempts - once}, missing {once - attempts}"
        in_sql = Counter((row["version"].hex(), 0, row["due"]) for row in messages)
        told = self._lines()
        assert {line[0] for line in told} == {line[0] for line in in_sql}
        pushes = Counter(row["version"].hex() for row in messages)
        assert Counter(version for version, op, _ in told.elements() if op == "push") == pushes
        kinds = {State.CANCELLED: "cancel", State.DELAYED: "reschedule"}
        wanted = Counter(
            (row["version"].hex(), "attempt" if row["attempt"] else kinds[row["state"]])
            for row in changes
        )
        found = Counter((version, op) for version, op, _ in told.elements() if op != "push")
        assert found == wanted, f"files too much {found - wanted}, too little {wanted - found}"

    def _behind(self) -> list[tuple[str, int, int, int]]:
        """Logs that are not told whole: process, the place of SQL, of the files, the end."""
        with closing(self._sql()) as sql:
            places = {row["writer"]: row["pos"] for row in sql.execute("SELECT * FROM cursors")}
        told = json.loads((self.world.folder / "data" / "told.json").read_text())["cursors"]
        found = []
        for log in self.world.logs():
            try:
                end = end_of_records(log.folder)
            except (FileNotFoundError, IndexError):
                continue
            place, line = places.get(log.writer, 0), told.get(log.writer.hex(), 0)
            if min(place, line) < end:
                found.append((log.head.process, place, line, end))
        return found

    def _sql(self) -> sqlite3.Connection:
        sql = sqlite3.connect(self.world.folder / "data" / "dq.db", timeout=PATIENCE_S)
        sql.row_factory = sqlite3.Row
        return sql

    def _rows(self) -> tuple[list[sqlite3.Row], list[sqlite3.Row]]:
        where = "m.id GLOB ? ORDER BY m.version"
        mine = (f"{self.name}.*",)
        with closing(self._sql()) as sql:
            messages = sql.execute(f"SELECT * FROM messages m WHERE {where}", mine).fetchall()
            query = "SELECT m.id, m.body, t.* FROM transitions t JOIN messages m USING (version)"
            return messages, sql.execute(f"{query} WHERE {where}, t.stamp", mine).fetchall()

    def tale(self) -> str:
        """All that is known of this case's jobs, for a failure."""
        messages, changes = self._rows()
        lines = [f"{row['id']} {row['body']} {State(row['state']).name}" for row in messages]
        lines += [
            " ".join((row["id"], State(row["state"]).name, str(row["attempt"]), row["detail"]))
            for row in changes
        ]
        calls = self.world.endpoint.of(f"{self.name}.")
        lines += [f"{call.at_ms:.0f} {call.id} {version_of(call)}" for call in calls]
        return "\n".join([*lines, str(self.world.unfinished())])

    def _lines(self) -> Counter[tuple[str, str, int | None]]:
        found: Counter[tuple[str, str, int | None]] = Counter()
        for path in (self.world.folder / "logs").glob("*_*.txt"):
            if path.name.startswith("err"):
                continue
            for text in path.read_text().splitlines(keepends=True):
                if not text.endswith("\n"):
                    continue  # it is being written
                line = json.loads(text)
                if line["id"].startswith(f"{self.name}."):
                    op = line.get("op", "attempt")
                    found[line["version"], op, line.get("due") or line.get("next_due")] += 1
        return found
