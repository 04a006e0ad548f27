"""Signatures of callbacks after the Standard Webhooks spec, version 1 (HMAC-SHA256).

A receiver that knows one of the topic's secrets can tell that a callback is dq's and whole.
Several secrets sign side by side, so that one can be replaced without a gap.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 16, 128
_MAX_SECRETS = 8


def parse_secrets(text: str) -> list[bytes]:
    """The keys of one or more secrets, `whsec_` and base64, separated by spaces.

    Raises ValueError, which never repeats the secret itself.
    """
    words = text.split()
    if not 1 <= len(words) <= _MAX_SECRETS:
        raise ValueError(f"must be 1 to {_MAX_SECRETS} secrets separated by spaces, or null")
    return [_parse_secret(word) for word in words]


def sign(keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The `webhook-signature` header: a signature for each key, separated by spaces."""
    content = f"{message_id}.{timestamp_s}.".encode() + body
    return " ".join(f"v1,{_digest(key, content)}" for key in keys)


def _digest(key: bytes, content: bytes) -> str:
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()


def _parse_secret(word: str) -> bytes:
    if not word.startswith(PREFIX):
        raise ValueError(
            f"must begin with {PREFIX} and go on in base64, "
            f'e.g. "{PREFIX}$(openssl rand -base64 32)"'
        )
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"must be valid base64, padded with =, after {PREFIX}") from None
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ValueError(
            f"must hold {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes, 32 for instance; "
            f"it holds {len(key)}"
        )
    return key
