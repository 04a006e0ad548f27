"""Reasons in words: short, on one line, printable."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.delivery.reasons import AddressDenied, clean, explain


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "connection reset"),
        (BrokenPipeError(errno.EPIPE, "pipe"), "connection reset"),
        (ConnectionError("gone"), "connection reset"),
        (OSError(errno.ENETUNREACH, "net"), "network unreachable"),
        (OSError("Multiple exceptions: [Errno 101] a, [Errno 111] b"), "connect refused"),
        (OSError("Multiple exceptions: [Errno 101] a, [Errno 113] b"), "host unreachable"),
        (OSError(errno.EMFILE, "Too many open files"), "connection failed: Too many open files"),
        (AddressDenied("fe80::1"), "address fe80::1 is denied (DQ_CALLBACK_DENY)"),
        (ValueError("bad\r\nheader"), "bad request: bad header"),
    ],
)
def test_the_systems_errors_in_words(error: Exception, reason: str) -> None:
    assert explain(error, "host") == reason


@given(st.text(max_size=2000))
def test_a_reason_is_one_printable_line(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= 200
    assert len(cleaned.splitlines()) <= 1
    assert all(character.isprintable() for character in cleaned)
