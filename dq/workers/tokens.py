"""How API tokens made in the admin get to the servers: in less than two seconds, on every host.

dq-redis-checker brings what SQL has into the file, once a second; each dq-server reads the file
when it has changed, and tells SQL, off the path of any call, which tokens are used.
"""

from __future__ import annotations

import asyncio
import logging

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.db.token_book import USED_EACH_MS, TokenBook

_log = logging.getLogger(__name__)

LOOK_S = 0.5
SYNC_S = 1.0


async def bring_tokens(book: TokenBook) -> None:
    """Keep the file equal to SQL. Until cancelled."""
    while True:
        try:
            await book.sync()
        except DatabaseAway as error:
            _log.debug("tokens are those last known: %s", error.detail)
        await asyncio.sleep(SYNC_S)


async def follow_tokens(book: TokenBook) -> None:
    """Follow the file. Until cancelled."""
    next_note_ms = clock.mono_ms()
    while True:
        book.refresh()
        if clock.mono_ms() >= next_note_ms:
            next_note_ms = clock.mono_ms() + USED_EACH_MS / 4
            await _note_used(book)
        await asyncio.sleep(LOOK_S)


async def _note_used(book: TokenBook) -> None:
    try:
        await book.note_used(clock.now_ms())
    except DatabaseAway as error:
        _log.debug("the last use of tokens is noted later: %s", error.detail)
    for look_anew in book.changed:
        look_anew()  # who is known by sight would not be seen to use a token
