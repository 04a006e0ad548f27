"""Taking a batch apart into its jobs' bytes, so that one bad job spoils no other.

The batch as a whole must be JSON of the right shape; each entry is then read as a push of its own.
"""

from __future__ import annotations

import re

import msgspec

from dq.api.fields import Fields, mask_surrogates
from dq.core.errors import FieldError, Invalid

MAX_JOBS = 1000


class BatchFields(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON object of a batch; each entry is left as it came."""

    jobs: list[msgspec.Raw]


def split_batch(raw: bytes) -> list[bytes]:
    """The entries' bytes in order. Raises Refused 400, Invalid, when the whole can't be read."""
    try:
        return [bytes(entry) for entry in _fields.read(raw).jobs]
    except Invalid:
        entries = _split_around_surrogates(raw)
        if entries is None:
            raise
        return entries


def _split_around_surrogates(raw: bytes) -> list[bytes] | None:
    """Half a surrogate pair in one entry makes msgspec refuse the whole. So they are masked, the
    whole is split, and the entries get theirs back, in order: whoever has one fails alone.
    None if there is nothing to mask. Raises Invalid when more is wrong."""
    masked = mask_surrogates(raw)
    if masked is None:
        return None
    replaced = iter(masked.replaced)
    return [
        re.sub(re.escape(masked.mark), lambda _: next(replaced), bytes(entry))
        for entry in _fields.read(masked.text).jobs
    ]


def _check(fields: BatchFields) -> list[FieldError]:
    if len(fields.jobs) > MAX_JOBS:
        message = f"has {len(fields.jobs)} jobs; at most {MAX_JOBS} are taken at once"
        return [FieldError("jobs", message)]
    return []


_fields = Fields(BatchFields, {"jobs": "must be a list of jobs, each as in POST /v1/jobs"}, _check)
