"""Reading back from a log what a bucket has lost of it.

Records that the bucket refused the first time stand in the log with a note after them; they are
replaced by records that do nothing, so that the sequence stays dense.
"""

from __future__ import annotations

from pathlib import Path

from dq.log.frames import NOTE
from dq.log.log import read_frames
from dq.queue.records import NOTHING, unpack

CHUNK_MOST = 200
CHUNK_BYTES = 4 * 1024 * 1024


def missing_records(
    folder: Path, bucket: int, applied: int, until: int
) -> list[tuple[int, list[bytes]]]:
    """The records of a bucket after sequence `applied` and before `until`, in chunks that one
    call can carry: pairs of first sequence and payloads."""
    wanted: dict[int, bytes] = {}
    for frame in read_frames(folder):
        if frame.bucket == bucket and applied < frame.seq < until:
            wanted[frame.seq] = frame.payload
        elif frame.bucket == NOTE:
            _, _, noted_bucket, seq, _ = unpack(frame.payload)
            if noted_bucket == bucket and seq in wanted:
                wanted[seq] = NOTHING
    return _chunks(sorted(wanted.items()))


def _chunks(records: list[tuple[int, bytes]]) -> list[tuple[int, list[bytes]]]:
    chunks: list[tuple[int, list[bytes]]] = []
    size = 0
    for seq, payload in records:
        if not chunks or len(chunks[-1][1]) >= CHUNK_MOST or size + len(payload) > CHUNK_BYTES:
            chunks.append((seq, []))
            size = 0
        chunks[-1][1].append(payload)
        size += len(payload)
    return chunks
