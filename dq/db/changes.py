"""Whether what all hosts share has changed in SQL: topics, nodes and API tokens."""

from __future__ import annotations

import sqlalchemy as sa

from dq.db.database import Database
from dq.db.tables import api_tokens, counters, settings

_QUESTION = sa.select(
    sa.select(counters.c.value).where(counters.c.name == "topics").scalar_subquery(),
    sa.select(settings.c.v).where(settings.c.k == "nodes").scalar_subquery(),
    sa.select(sa.func.max(api_tokens.c.no)).scalar_subquery(),
    sa.select(sa.func.sum(api_tokens.c.made_ms)).scalar_subquery(),
    sa.select(sa.func.count(api_tokens.c.no)).scalar_subquery(),
    sa.select(sa.func.count(api_tokens.c.revoked_ms)).scalar_subquery(),
)


class Changes:
    """One question for all of it, asked only when SQL may have something new."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._trace: object = None
        self._mark: object = None

    async def mark(self) -> object:
        """Another one after each change; the same again means that there was none. Raises
        DatabaseAway."""
        trace = self._database.trace()
        if trace is None or trace != self._trace:
            async with self._database.read() as conn:
                self._mark = (await conn.execute(_QUESTION)).one()
            self._trace = trace
        return self._mark
