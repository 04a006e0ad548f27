"""Named places at which a test lets a process die, fail or hang, to see that nothing is lost.

    DQ_FAULT="write.synced=die"       the first time a process comes by
    DQ_FAULT="forward.after=raise:3"  the third time; several plans are separated by commas

    die    kill -9, by its own hand      raise  an exception (Struck)
    hang   SIGSTOP: stands still until its master kills it, or someone sends SIGCONT

Read once, at the import. Unarmed, as always but in tests, `reach` is a call and a look at an empty
dictionary: 24 ns on the machine the tests run on (timeit), and no point is passed more often than
once a batch or once a callback. Invariant: a plan strikes once in a process, and tells so first.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass

_log = logging.getLogger(__name__)

POINTS: dict[str, str] = {
    # A producer's call (dq-server)
    "push.validated": "a push is about to be written",
    "push.answered": "a push is done, but its producer has not been told",
    # Every writer: dq-server with pushes, dq-consumer with outcomes, dq-journal for the dead
    "write.appended": "a group is in the log, perhaps not on the disk",
    "write.synced": "it is on the disk",
    "write.applied": "a bucket has applied a group; refusals are not noted yet",
    "write.noted": "the refusals of a group are in the log",
    "write.counted": "the group counts as applied, nobody has been answered",
    # dq-consumer
    "lease.taken": "jobs are leased, nothing was begun",
    "call.before": "a callback is about to be made",
    "call.after": "a callback has been answered, its outcome is nowhere",
    "settle.applied": "an outcome is applied, the job is still counted as in hand",
    # dq-timer
    "forward.before": "due jobs are about to be made ready",
    "forward.after": "they are ready",
    # dq-journal, shipping
    "journal.read": "a stretch of a log was read",
    "journal.stored": "its rows are in an open transaction",
    "journal.committed": "its rows and its cursor are in SQL",
    "journal.written": "its lines are in the files for people, not in their checkpoint",
    "journal.told": "the checkpoint is written",
    "journal.dropped": "an old segment of a living writer is gone",
    "journal.retired": "a dead log that is done with is out of everybody's sight",
    "journal.closed": "the buckets have forgotten its writer, SQL knows that it is at its end",
    "journal.removed": "the log is gone",
    # dq-journal, as the heir of dead writers
    "heir.found": "a dead writer was found",
    "heir.applied": "its log is applied",
    "heir.rescued": "its leases are given back, which is not written down yet",
    "heir.held": "a job that can't be given back is held, to be settled",
    "heir.buried": "the dead writer is done with",
    # dq-redis-checker
    "restore.found": "a bucket is not there, and is locked",
    "restore.begun": "its new epoch is written",
    "restore.shipped": "SQL has all that had been applied in it",
    "restore.placed": "the position of one log is written there, not yet into the log's own table",
    "restore.declared": "the positions of all logs are declared",
    "restore.streamed": "a page of jobs is back",
    "restore.ready": "the bucket is ready, still locked",
}
"""Each with what is true when it is reached."""

KINDS = ("die", "raise", "hang")


class Struck(Exception):
    """Raised at a point that was armed with `raise`."""


@dataclass(slots=True)
class _Plan:
    kind: str
    passes_left: int


_plans: dict[str, _Plan] = {}


def reach(point: str) -> None:
    """The process has come to `point`; nothing happens unless that is armed."""
    if _plans:
        _pass(point)


def arm(text: str) -> None:
    """Take these plans instead of those before; "" for none.

    Raises ValueError for what is no plan, and for a point that does not exist.
    """
    plans = dict(_plan_of(one.strip()) for one in text.split(",") if one.strip())
    _plans.clear()
    _plans.update(plans)


def _plan_of(text: str) -> tuple[str, _Plan]:
    point, _, what = text.partition("=")
    kind, _, times = what.partition(":")
    if point not in POINTS or kind not in KINDS or not (times or "1").isdecimal():
        raise ValueError(f"{text}: want POINT={'|'.join(KINDS)}[:N], POINT one of dq.core.faults")
    return point, _Plan(kind, int(times or 1))


def _pass(point: str) -> None:
    plan = _plans.get(point)
    if plan is None:
        return
    plan.passes_left -= 1
    if plan.passes_left > 0:
        return
    del _plans[point]
    _log.critical("fault struck: %s=%s", point, plan.kind)
    if plan.kind == "raise":
        raise Struck(point)
    os.kill(os.getpid(), signal.SIGKILL if plan.kind == "die" else signal.SIGSTOP)


arm(os.environ.get("DQ_FAULT", ""))
