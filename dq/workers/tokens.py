"""How API tokens made in the admin get to the servers: in less than two seconds, on every host.

dq-redis-checker brings what SQL has into the file (dq/workers/following.py); each dq-server reads
the file when it has changed, and tells SQL, off the path of any call, which tokens are used.
"""

from __future__ import annotations

import logging

from dq.core import clock
from dq.core.errors import DatabaseAway
from dq.core.pace import next_turn
from dq.db.token_book import USED_EACH_MS, TokenBook

_log = logging.getLogger(__name__)

LOOK_S = 0.5


async def follow_tokens(book: TokenBook) -> None:
    """Follow the file. Until cancelled."""
    next_note_ms = clock.mono_ms()
    while True:
        book.refresh()
        if clock.mono_ms() >= next_note_ms:
            next_note_ms = clock.mono_ms() + USED_EACH_MS / 4
            await _note_used(book)
        await next_turn(LOOK_S)


async def _note_used(book: TokenBook) -> None:
    try:
        await book.note_used(clock.now_ms())
    except DatabaseAway as error:
        _log.debug("the last use of tokens is noted later: %s", error.detail)
    for look_anew in book.changed:
        look_anew()  # who is known by sight would not be seen to use a token
