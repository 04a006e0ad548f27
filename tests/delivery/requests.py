"""Requests for the tests of delivery."""

from __future__ import annotations

from dq.core.callback import CallbackRequest

HEADERS = [("Content-Type", "application/json"), ("DQ-Topic", "t"), ("DQ-Id", "42")]
BODY = b'{"order":42}'


def post(url: str, timeout_s: float = 0.4, body: bytes = BODY) -> CallbackRequest:
    return CallbackRequest("POST", url, HEADERS, body, timeout_s)


def get(url: str, timeout_s: float = 0.4) -> CallbackRequest:
    return CallbackRequest("GET", url, HEADERS, None, timeout_s)
