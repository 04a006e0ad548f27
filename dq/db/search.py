"""Searching the journal, newest first, page by page; each call's work is bounded.

Each state is read along its own index and the streams are merged: one index can't serve "this
topic, any state, newest first" and "this topic, dead" both. What no index knows, a text inside a
body or whether a newer version exists, is looked at for SCAN_ROWS candidates at a time and for a
budget of time in all; the cursor says where to go on, even when nothing was found so far.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from dq.core.clock import mono_ms
from dq.core.errors import FieldError, Invalid
from dq.db.replaced import same_job
from dq.db.rows import JobSummary, Page, State
from dq.db.tables import messages

SCAN_ROWS = 2_000
BUDGET_MS = 2_000
PREVIEW_BYTES = 1024
_SPARE_ROWS = 50
_FINAL_AND_DELAYED = (State.DELAYED, State.DEAD, State.CANCELLED, State.DONE)
_END = b"\xff" * 16


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched for; None is any."""

    topic: str | None
    state: State | None
    key: str | None
    q: str | None
    from_ms: int | None
    to_ms: int | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A state's jobs, complete down to version `floor` (b"": to the end)."""

    jobs: list[JobSummary]
    floor: bytes


async def find_page(
    conn: AsyncConnection,
    wanted: Wanted,
    limit: int,
    cursor: str | None,
    budget_ms: float = BUDGET_MS,
) -> Page:
    """The page of up to `limit` jobs below `cursor`. Raises Invalid for a broken cursor."""
    floor = _END if cursor is None else _decode_cursor(cursor)
    jobs: list[JobSummary] = []
    give_up_ms = mono_ms() + budget_ms
    while floor and len(jobs) < limit and mono_ms() < give_up_ms:
        stretch = await _read_stretch(conn, wanted, floor, limit - len(jobs))
        jobs += stretch.jobs
        floor = stretch.floor
    return Page(jobs, _encode_cursor(floor) if floor else None)


async def _read_stretch(
    conn: AsyncConnection, wanted: Wanted, below: bytes, limit: int
) -> _Stretch:
    states = _FINAL_AND_DELAYED if wanted.state is None else (wanted.state,)
    stretches = [await _read_state(conn, wanted, state, below, limit) for state in states]
    floor = max(stretch.floor for stretch in stretches)
    jobs = [job for stretch in stretches for job in stretch.jobs if job.version >= floor]
    jobs.sort(key=_version, reverse=True)
    if len(jobs) > limit:
        jobs = jobs[:limit]
        floor = jobs[-1].version
    return _Stretch(jobs, floor)


async def _read_state(
    conn: AsyncConnection, wanted: Wanted, state: State, below: bytes, limit: int
) -> _Stretch:
    # Nearly all match where no text is asked for: a few more than wanted are enough.
    most = SCAN_ROWS if wanted.q is not None else min(limit + _SPARE_ROWS, SCAN_ROWS)
    scanned = _candidates(wanted, state, below).limit(most).subquery()
    rows = await conn.execute(_summaries(scanned, wanted.q).limit(limit))
    jobs = [JobSummary(**row._mapping) for row in rows]
    if len(jobs) == limit:
        return _Stretch(jobs, jobs[-1].version)
    extent = sa.select(sa.func.count(), sa.func.min(scanned.c.version)).select_from(scanned)
    count, lowest = (await conn.execute(extent)).one()
    return _Stretch(jobs, lowest if count == most else b"")


def _summaries(scanned: sa.Subquery, q: str | None) -> sa.Select[Any]:
    job, newer = messages.c, messages.alias("newer")
    columns = [job[name] for name in JobSummary.__struct_fields__[:-2]]
    preview = sa.func.substr(job.body, 1, PREVIEW_BYTES).label("preview")
    size = sa.func.length(job.body).label("size")
    is_newer = same_job(newer, messages) & (newer.c.version > job.version)
    has_newer = sa.exists().where(is_newer, newer.c.state != State.REPLACED)
    query = sa.select(*columns, preview, size).join(scanned, scanned.c.version == job.version)
    query = query.where(sa.not_(has_newer)).order_by(job.version.desc())
    return query if q is None else query.where(_contains(q))


def _candidates(wanted: Wanted, state: State, below: bytes) -> sa.Select[Any]:
    job = messages.c
    query = sa.select(job.version).where(job.state == state, job.version < below)
    if wanted.topic is not None:
        query = query.where(job.topic == wanted.topic)
    if wanted.key is not None:
        # The second half lets SQLite use its index, which leaves out jobs without a key.
        query = query.where(job.bkey == wanted.key, job.bkey != "")
    if wanted.from_ms is not None:
        query = query.where(job.version >= _first_version(wanted.from_ms))
    if wanted.to_ms is not None:
        query = query.where(job.version < _first_version(wanted.to_ms))
    return query.order_by(job.version.desc())


def _contains(text: str) -> sa.ColumnElement[bool]:
    job = messages.c
    return sa.or_(
        sa.func.instr(job.id, text) > 0,
        sa.func.instr(job.bkey, text) > 0,
        sa.func.instr(job.body, text.encode()) > 0,
    )


def _first_version(at_ms: int) -> bytes:
    stamp = min(max(at_ms, 0) * 1000, 2**63 - 1)
    return stamp.to_bytes(8, "big") + bytes(8)


def _version(job: JobSummary) -> bytes:
    return job.version


def _encode_cursor(version: bytes) -> str:
    return urlsafe_b64encode(version).decode().rstrip("=")


def _decode_cursor(cursor: str) -> bytes:
    try:
        version = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (NotBase64, ValueError):
        version = b""
    if len(version) != 16:
        raise Invalid([FieldError("cursor", "must be the cursor that the page before gave")])
    return version
