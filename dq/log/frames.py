"""One record on disk: a frame of fixed head and opaque payload.

    head     magic u16 | bucket u16 | length u32 | crc32 u32 | sequence u64      (big endian)
    payload  `length` bytes, a msgpack array (dq.queue.records gives it meaning)

The checksum covers bucket, sequence and payload. Each group that is written begins with a mark: up
to which position of the log the disk had everything then. So a reader can tell a tail that was
never synced, whose pages may have reached the disk in any order, from damage: a broken frame that a
later mark vouches for. A segment opens with a head of its own that names the format's version, the
writer and its buckets.

To change the format: raise VERSION, keep `read_head` and `Frame` able to read the old one, add a
test with bytes of the old one; a reader refuses a version that it does not know.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from typing import NamedTuple

import msgspec

VERSION = 1
NOTE = 0xFFFF
"""The bucket number of a record that concerns the log alone and is never applied."""
_MARK = 0xFFFE

_FRAME = struct.Struct(">HHIIQ")
_TAG = struct.Struct(">HQ")
_MAGIC = 0xD951
_SEGMENT = struct.Struct(">6sHI")
_SEGMENT_MAGIC = b"dqlog\x00"


class LogDamaged(Exception):
    """A log whose middle cannot be read: not a crash but corruption, for a person to look at."""


class Frame(NamedTuple):
    """One record as read back; it begins at `pos` of the writer's log and ends before `end`."""

    pos: int
    end: int
    bucket: int
    seq: int
    payload: bytes


class Head(msgspec.Struct, frozen=True):
    """What a segment says of itself."""

    writer: str
    process: str
    host: str
    pid: int
    started_ms: int
    buckets: list[str]


def encode_frame(bucket: int, seq: int, payload: bytes) -> bytes:
    """The bytes of one record; `seq` is dense per writer and bucket, from 1."""
    crc = zlib.crc32(payload, zlib.crc32(_TAG.pack(bucket, seq)))
    return _FRAME.pack(_MAGIC, bucket, len(payload), crc, seq) + payload


def encode_mark(synced: int) -> bytes:
    """Says that everything before position `synced` of this log has been synced."""
    return encode_frame(_MARK, synced, b"")


def encode_head(head: Head) -> bytes:
    """The bytes with which each segment opens."""
    body = msgspec.json.encode(head)
    return _SEGMENT.pack(_SEGMENT_MAGIC, VERSION, len(body)) + body


def end_of_head(data: bytes) -> int:
    """The offset of the first frame of a segment that begins with `data`, 16 bytes of it at least.

    Raises LogDamaged for anything else, an unknown version included.
    """
    if len(data) < _SEGMENT.size:
        raise LogDamaged("the segment ends inside its head")
    magic, version, length = _SEGMENT.unpack_from(data)
    if magic != _SEGMENT_MAGIC:
        raise LogDamaged("this is not a segment of a dq log")
    if version != VERSION:
        raise LogDamaged(f"log format {version} is not known here (this dq reads {VERSION})")
    return _SEGMENT.size + int(length)


def decode_head(data: bytes) -> tuple[Head, int]:
    """A segment's head and the offset of its first frame. Raises LogDamaged."""
    end = end_of_head(data)
    try:
        return msgspec.json.decode(data[_SEGMENT.size : end], type=Head), end
    except msgspec.DecodeError as error:
        raise LogDamaged(f"the segment's head cannot be read: {error}") from error


def decode_frames(data: bytes, base: int, offset: int = 0) -> Generator[Frame, None, int]:
    """The frames in `data` from `offset` on; `base` is the log position of data[0]. Returns the
    position up to which all is whole.

    Ends at a tail that was never synced. Raises LogDamaged for a broken frame that was.
    """
    offset = (yield from whole_frames(data, base, offset)) - base
    if offset + _FRAME.size <= len(data):
        _refuse_if_synced(data, base, offset)
    return base + offset


def whole_frames(data: bytes, base: int, offset: int = 0) -> Generator[Frame, None, int]:
    """The same up to the first one that is not whole, whatever the reason; for those who can look
    further than `data`. This loop is passed for each record several times: what can be is C."""
    end_of_data, size, crc32, make = len(data), _FRAME.size, zlib.crc32, tuple.__new__
    read_head, tag = _FRAME.unpack_from, _TAG.pack
    while (begin := offset + size) <= end_of_data:
        magic, bucket, length, crc, seq = read_head(data, offset)
        end = begin + length
        payload = data[begin:end]
        if magic != _MAGIC or end > end_of_data:
            break
        if crc32(payload, crc32(tag(bucket, seq))) != crc:
            break
        if bucket != _MARK:
            yield make(Frame, (base + offset, base + end, bucket, seq, payload))
        offset = end
    return base + offset


def _is_whole(bucket: int, seq: int, payload: bytes, crc: int) -> bool:
    return zlib.crc32(payload, zlib.crc32(_TAG.pack(bucket, seq))) == crc


def _refuse_if_synced(data: bytes, base: int, bad: int) -> None:
    """Look for a mark that vouches for what is broken."""
    start = struct.pack(">HH", _MAGIC, _MARK)
    at = data.find(start, bad + 1)
    while at >= 0 and at + _FRAME.size <= len(data):
        _, bucket, length, crc, synced = _FRAME.unpack_from(data, at)
        if length == 0 and _is_whole(bucket, synced, b"", crc) and synced > base + bad:
            raise LogDamaged(
                f"the record at position {base + bad} is broken, and it was on the disk: "
                f"a mark at {base + at} says so"
            )
        at = data.find(start, at + 1)
