"""Jobs by their names, many at once: what an id alone means when the topics are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from dq.db.database import Database
from dq.db.rows import JobSummary, State
from dq.db.search import PREVIEW_BYTES
from dq.db.tables import messages

_CHUNK = 500


class Lookup:
    """`digest_of(topic, id)` as in JournalStore."""

    def __init__(self, database: Database, digest_of: Callable[[str, str], bytes]) -> None:
        self._database = database
        self._digest_of = digest_of

    async def jobs(self, names: Sequence[tuple[str, str]]) -> list[JobSummary]:
        """Those of the jobs (topic, id) that the journal knows, each in its newest version, the
        newest first. Raises DatabaseAway."""
        wanted = set(names)
        newest: dict[tuple[str, str], JobSummary] = {}
        digests = [self._digest_of(*name) for name in names]
        async with self._database.read() as conn:
            for start in range(0, len(digests), _CHUNK):
                query = _summaries(digests[start : start + _CHUNK])
                for row in await conn.execute(query):
                    name = (row.topic, row.id)
                    if name in wanted and name not in newest:
                        newest[name] = JobSummary(**row._mapping)
        return sorted(newest.values(), key=_version, reverse=True)


def _summaries(digests: Sequence[bytes]) -> sa.Select[tuple[object, ...]]:
    job = messages.c
    columns = [job[name] for name in JobSummary.__struct_fields__[:-2]]
    preview = sa.func.substr(job.body, 1, PREVIEW_BYTES).label("preview")
    size = sa.func.length(job.body).label("size")
    query = sa.select(*columns, preview, size).where(job.digest.in_(digests))
    return query.where(job.state != State.REPLACED).order_by(job.version.desc())


def _version(job: JobSummary) -> bytes:
    return job.version
