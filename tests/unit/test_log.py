"""A writer's log: frames, segments, positions, and what its neighbours see of it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dq.log import log as log_module
from dq.log.frames import (
    NOTE,
    VERSION,
    Head,
    LogDamaged,
    decode_frames,
    decode_head,
    encode_frame,
    encode_head,
    encode_mark,
)
from dq.log.log import (
    EPOCHS,
    Log,
    cut_torn_tail,
    end_of_records,
    open_high,
    read_frames,
    read_head,
    segments,
)
from dq.log.neighbours import Neighbour, Neighbours
from tests.forked import Forked

HEAD = Head("00" * 8, "dq-server-0", "here", 1, 2, ["embedded/0", "embedded/1"])

records = st.tuples(
    st.integers(0, 511) | st.just(NOTE), st.integers(0, 2**64 - 1), st.binary(max_size=300)
)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log", "dq-server-0", ["embedded/0", "embedded/1"])


def told(folder: Path, from_pos: int = 0) -> list[tuple[int, int, bytes]]:
    return [(frame.bucket, frame.seq, frame.payload) for frame in read_frames(folder, from_pos)]


def only_segment(log: Log) -> Path:
    ((_, path),) = segments(log.folder)
    return path


# Frames


@given(st.lists(records), st.integers(0, 1 << 40))
def test_frames_come_back_as_they_were_with_their_positions(
    wanted: list[tuple[int, int, bytes]], base: int
) -> None:
    pieces = [encode_frame(*record) for record in wanted]
    frames = list(decode_frames(b"".join(pieces), base))
    assert [(frame.bucket, frame.seq, frame.payload) for frame in frames] == wanted
    ends = [base + sum(map(len, pieces[: n + 1])) for n in range(len(pieces))]
    assert [frame.end for frame in frames] == ends
    assert [frame.pos for frame in frames] == [base, *ends][: len(frames)]


def test_a_tail_torn_at_any_byte_ends_the_reading_before_it() -> None:
    good = encode_frame(1, 7, b"first") + encode_frame(0, 8, b"second")
    last = encode_frame(1, 9, b"the one that the crash tore")
    for cut in range(len(last)):
        frames = list(decode_frames(good + last[:cut], 0))
        assert [frame.seq for frame in frames] == [7, 8], f"cut at byte {cut}"


@pytest.mark.parametrize("tail", [b"\x00" * 5000, b"\xff" * 64, b"\xd9\x51" * 40])
def test_a_tail_of_rubbish_is_no_damage(tail: bytes) -> None:
    """A crash may leave zeros, or old blocks, where the record should have been."""
    data = encode_frame(0, 1, b"good") + tail
    assert [frame.seq for frame in decode_frames(data, 0)] == [1]


def test_any_changed_byte_that_a_later_mark_vouches_for_is_damage() -> None:
    bad, good = encode_frame(1, 1, b"payload"), encode_frame(1, 2, b"another")
    for place in range(len(bad)):
        for change in (0x01, 0x80, 0xFF):
            data = bytearray(bad + encode_mark(100 + len(bad)) + good)
            data[place] ^= change
            with pytest.raises(LogDamaged, match=f"position 100 .* at {100 + len(bad)}"):
                list(decode_frames(bytes(data), 100))


def test_good_records_after_a_broken_one_that_was_never_synced_are_its_tail() -> None:
    """A power cut leaves the pages of what was not synced in any order."""
    synced = encode_frame(1, 1, b"synced")
    at = len(synced)
    group = encode_mark(at) + encode_frame(1, 2, b"x" * 5000) + encode_frame(1, 3, b"y" * 5000)
    for hole in range(at, at + len(group) - 1, 97):
        data = bytearray(synced + group + encode_mark(at) + encode_frame(1, 4, b"later"))
        data[hole : hole + 4096] = bytes(len(data[hole : hole + 4096]))
        found = [frame.seq for frame in decode_frames(bytes(data), 0)]
        assert found == [1, 2, 3, 4][: len(found)] and len(found) < 4


def test_a_record_of_another_bucket_or_sequence_does_not_pass_for_this_one() -> None:
    frame = encode_frame(1, 5, b"same payload")
    other = encode_frame(2, 6, b"same payload")
    head_of_other = other[:8] + frame[8:12] + other[12:]  # its own fields under frame's checksum
    assert list(decode_frames(head_of_other, 0)) == []


def test_a_head_comes_back_and_says_where_the_records_begin() -> None:
    data = encode_head(HEAD)
    assert decode_head(data + b"more") == (HEAD, len(data))


def test_an_unknown_version_is_refused_by_its_number() -> None:
    data = bytearray(encode_head(HEAD))
    data[7] = VERSION + 1
    with pytest.raises(LogDamaged, match=rf"format {VERSION + 1} is not known"):
        decode_head(bytes(data))


def test_what_is_no_segment_is_refused() -> None:
    data = encode_head(HEAD)
    with pytest.raises(LogDamaged, match="not a segment"):
        decode_head(b"x" + data[1:])
    for cut in range(len(data)):
        with pytest.raises(LogDamaged):
            decode_head(data[:cut])


# Logs


def test_each_log_has_a_name_of_its_own_and_says_who_writes_it(tmp_path: Path) -> None:
    first, second = (Log(tmp_path, "dq-server-0", ["n/0"]) for _ in range(2))
    assert first.writer != second.writer
    head = read_head(first.folder)
    assert (head.writer, head.process, head.pid) == (first.writer.hex(), "dq-server-0", os.getpid())
    assert head.buckets == ["n/0"]


def test_what_was_appended_is_read_back(log: Log) -> None:
    log.append(encode_frame(0, 1, b"a") + encode_frame(1, 1, b"b"))
    assert log.append(encode_frame(0, 2, b"c")) == log.end
    log.sync()
    assert told(log.folder) == [(0, 1, b"a"), (1, 1, b"b"), (0, 2, b"c")]


def test_a_new_segment_begins_when_one_is_full_and_positions_go_on(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1_000)
    for seq in range(1, 101):
        log.append(encode_frame(0, seq, b"x" * 80))
    parts = segments(log.folder)
    assert len(parts) > 5
    for (start, path), (following, _) in pairwise(parts):
        assert start + path.stat().st_size == following
        assert path.stat().st_size >= 1_000
    frames = list(read_frames(log.folder))
    assert [frame.seq for frame in frames] == list(range(1, 101))
    assert frames[-1].end == log.end == end_of_records(log.folder)
    for number, frame in enumerate(frames):
        rest = list(read_frames(log.folder, frame.pos))
        assert rest == frames[number:], f"from position {frame.pos}"
        assert list(read_frames(log.folder, frame.end)) == frames[number + 1 :]


def test_the_end_of_records_does_not_count_a_head_without_records(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert end_of_records(log.folder) == 0
    end = log.append(encode_frame(0, 1, b"a"))
    assert end_of_records(log.folder) == end
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", log.end)
    log.append(b"")
    assert len(segments(log.folder)) == 2
    assert end_of_records(log.folder) == end


def test_a_segment_is_whole_from_the_moment_it_is_seen(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader, or a power cut, between its making and its head must not find a broken log."""
    seen: list[list[tuple[int, bytes]]] = []
    real = log_module._write_all

    def write_and_look(fd: int, data: bytes) -> None:
        seen.append(told(log.folder))
        assert read_head(log.folder).process == "dq-server-0"
        real(fd, data)

    log.append(encode_frame(0, 1, b"a"))
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(log_module, "_write_all", write_and_look)
    log.append(encode_frame(0, 2, b"b"))
    assert seen == [[(0, 1, b"a")]] * 2
    assert len(segments(log.folder)) == 2


def test_a_torn_tail_is_cut_off_at_any_byte(log: Log) -> None:
    end = log.append(encode_frame(0, 1, b"whole"))
    log.append(encode_frame(0, 2, b"torn"))
    path = only_segment(log)
    data = path.read_bytes()
    for size in range(end, len(data)):
        path.write_bytes(data[:size])
        assert told(log.folder) == [(0, 1, b"whole")]
        cut_torn_tail(log.folder, end)
        assert path.read_bytes() == data[:end]


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_a_torn_tail_right_after_a_segments_head_is_cut_off(
    log: Log, monkeypatch: pytest.MonkeyPatch, torn: bytes
) -> None:
    end = log.append(encode_frame(0, 1, b"whole"))
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", log.end)
    log.append(torn)
    assert len(segments(log.folder)) == 2
    cut_torn_tail(log.folder, end)
    assert end_of_records(log.folder) == end
    assert told(log.folder) == [(0, 1, b"whole")]


def test_a_log_without_a_whole_record_is_cut_to_its_head(log: Log) -> None:
    size = only_segment(log).stat().st_size
    log.append(b"torn")
    cut_torn_tail(log.folder, 0)
    assert only_segment(log).stat().st_size == size


def test_a_tail_missing_from_the_middle_is_damage(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(encode_frame(0, 1, b"a"))
    middle = log.append(encode_frame(0, 2, b"b"))
    first = only_segment(log)
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1)
    log.append(encode_frame(0, 3, b"c"))
    os.truncate(first, middle - 1)
    with pytest.raises(LogDamaged, match="another segment follows"):
        told(log.folder)


def test_records_are_read_while_more_are_written(log: Log) -> None:
    log.append(encode_frame(0, 1, b"a"))
    log.append(encode_frame(0, 2, b"still being written")[:-3])
    assert told(log.folder) == [(0, 1, b"a")]


# Neighbours


def test_positions_are_seen_through_a_second_mapping(log: Log) -> None:
    other = open_high(log.folder)
    log.high[3] = 2**63 + 7
    assert other[3] == 2**63 + 7
    other[EPOCHS] = 5
    assert log.high[EPOCHS] == 5


def test_a_neighbour_knows_positions_by_the_names_of_the_buckets(log: Log) -> None:
    log.high[1] = 44
    neighbours = Neighbours(log.folder.parent)
    (one,) = neighbours.look()
    assert (one.writer, one.high_of("embedded/1")) == (log.writer, 44)
    assert one.high_of("another/0") == 0
    assert neighbours.high_of("embedded/1") == [(log.writer, 44)]
    assert neighbours.high_of("embedded/0") == []


def test_positions_hold_in_the_epoch_in_which_they_were_declared(log: Log) -> None:
    one = Neighbour(log.folder)
    assert one.is_declared("embedded/1", 77), "nothing of it was ever applied"
    one.declare("embedded/1", 77, 5)
    assert one.is_declared("embedded/1", 77)
    assert not one.is_declared("embedded/1", 78)
    assert (log.high[1], log.high[EPOCHS + 1]) == (5, 77)


def test_a_writer_lives_as_long_as_its_process(tmp_path: Path) -> None:
    kept: list[Log] = []

    def write() -> bytes:
        log = Log(tmp_path, "dq-server-0", ["n/0"])
        kept.append(log)
        log.append(encode_frame(0, 1, b"a"))
        return b""

    child = Forked(write)
    (one,) = Neighbours(tmp_path).look()
    assert one.is_alive()
    assert one.is_alive(), "looking takes nothing away"
    child.kill()
    assert not one.is_alive()
    assert told(one.folder) == [(0, 1, b"a")]


def test_a_log_of_this_process_lives_until_it_is_closed(log: Log) -> None:
    (one,) = Neighbours(log.folder.parent).look()
    assert one.is_alive()
    log.close()
    assert not one.is_alive()


def test_neighbours_come_and_go_and_damage_is_told(log: Log) -> None:
    root = log.folder.parent
    neighbours = Neighbours(root)
    assert [one.writer for one in neighbours.look()] == [log.writer]
    (root / "0123456789abcdef").mkdir()  # being made: no segment yet
    (root / "a file").write_bytes(b"")
    (root / "lost+found").mkdir()
    (root / "00000000000000ff").mkdir()
    (root / "00000000000000ff" / f"{0:020d}.seg").write_bytes(b"this is no segment")
    other = Log(root, "dq-consumer-0", [])
    assert {one.writer for one in neighbours.look()} == {log.writer, other.writer}
    assert "not a segment" in neighbours.damaged["00000000000000ff"]
    for path in other.folder.iterdir():
        path.unlink()
    other.folder.rmdir()
    assert [one.writer for one in neighbours.look()] == [log.writer]


def test_no_logs_at_all_are_no_neighbours(tmp_path: Path) -> None:
    assert Neighbours(tmp_path / "missing").look() == []
