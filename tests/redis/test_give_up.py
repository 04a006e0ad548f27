"""A bucket that fell back further than a log reaches is given up, for the journal to restore."""

from __future__ import annotations

import pytest

from dq.log import log as log_module
from dq.log.log import segments
from dq.queue import records
from dq.queue.nodes import Bucket
from dq.queue.writer import Writer
from tests.valkey import Valkey

DUE = 4_000_000_000_000


def a_push(writer: Writer, number: int) -> list[object]:
    return records.push(
        writer.next_stamp(),
        topic="t",
        id_=str(number),
        body=b"1",
        due_ms=DUE,
        absolute=False,
        priority=1,
        timeout_ms=0,
        key="",
        on_duplicate=0,
    )


async def test_records_that_only_the_journal_has_make_the_bucket_begin_anew(
    writer: Writer, bucket: Bucket, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1000)
    for number in range(60):
        await writer.submit(bucket, a_push(writer, number))
    parts = segments(writer.log.folder)
    assert len(parts) > 2
    client = valkey.client()
    client.hset(bucket.keys[0], b"h" + writer.name, 10)
    await writer.catch_up(bucket)
    assert client.hlen(bucket.keys[1]) == 60, "all segments are there: the tail is sent again"
    parts[0][1].unlink()
    client.hset(bucket.keys[0], b"h" + writer.name, 0)
    await writer.catch_up(bucket)
    assert not client.keys("{dq0}*")
