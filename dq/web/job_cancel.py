"""Cancelling every unfinished job that matches, a page at a time."""

from __future__ import annotations

import asyncio

from dq.api.deps import JobSearch
from dq.core.errors import DatabaseAway, DqError
from dq.journal.dead import Done
from dq.web.deps import Admin
from dq.web.job_search import JobFinder

STEP = 100


class CancelStep:
    """One step cancels up to STEP jobs. A job that runs can't be called back; it is not retried,
    and that counts as done."""

    def __init__(self, admin: Admin, finder: JobFinder, search: JobSearch) -> None:
        self._admin = admin
        self._finder = finder
        self._search = search
        self._cursor: str | None = None

    async def __call__(self) -> tuple[Done, bool]:
        """Raises DatabaseAway."""
        if self._cursor is None and await self._finder.is_behind():
            raise DatabaseAway("the journal is behind the logs")
        lines, self._cursor = await self._finder.unfinished_page(self._search, STEP, self._cursor)
        done = Done(matched=len(lines))
        cancels = (self._admin.schedule.cancel(line.topic, line.id) for line in lines)
        for end in await asyncio.gather(*cancels, return_exceptions=True):
            _count(end, done)
        return done, self._cursor is None


def _count(end: str | BaseException | None, done: Done) -> None:
    if isinstance(end, DqError):
        done.failed += 1
        done.trouble = str(end)
        done.reasons = [str(end)]
    elif isinstance(end, BaseException):
        raise end
    elif end is None:
        done.gone += 1
    else:
        done.done += 1
