"""Ids of jobs: which ones are taken, and making one when the producer gives none.

An id names a job in URLs, logs, mails and pages, so it is printable and has no spaces; beyond
that it is the producer's own and is compared byte for byte.
"""

from __future__ import annotations

import base64
import os

MAX_ID_CHARS = 256

_HEX = b"0123456789ABCDEFGHIJKLMNOPQRSTUV"
_CROCKFORD = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TO_CROCKFORD = bytes.maketrans(_HEX, _CROCKFORD)


def new_id(now_ms: int) -> str:
    """A ULID: 26 characters that sort by time and need no quoting in a URL."""
    value = now_ms.to_bytes(6, "big") + os.urandom(10)
    # 20 bytes are 32 digits to the base of 32; the 16 that matter are the last 26 of them.
    digits = base64.b32hexencode(value.rjust(20, b"\0"))[6:]
    return digits.translate(_TO_CROCKFORD).decode()


def is_good_id(id: str) -> bool:
    """Whether a job may have this id: 1 to 256 printable characters without spaces."""
    return 0 < len(id) <= MAX_ID_CHARS and id.isprintable() and " " not in id


def fault_of_id(id: str) -> str:
    """What is wrong with an id that is not good, in words."""
    if not 0 < len(id) <= MAX_ID_CHARS:
        return f"has {len(id)} characters; it must have 1 to {MAX_ID_CHARS}"
    for place, character in enumerate(id, 1):
        if character == " " or not character.isprintable():
            return (
                f"has U+{ord(character):04X} as its character {place}; "
                "only printable characters without spaces are taken"
            )
    raise ValueError(f"{id!r} is a good id")
