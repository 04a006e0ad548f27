"""What shared memory says of another boot of the machine is void, whatever of it survived."""

from __future__ import annotations

from pathlib import Path

from dq.log.log import BOOTS, Log
from dq.log.neighbours import Neighbours

BUCKET = "embedded/0"


def test_after_a_power_cut_a_log_is_unsure_until_it_is_vouched_for(tmp_path: Path) -> None:
    log = Log(tmp_path, "dq-consumer-0", [BUCKET])
    log.high[0] = 265
    neighbours = Neighbours(tmp_path)
    (one,) = neighbours.look()
    assert neighbours.is_sure(BUCKET)
    log.high[BOOTS] = 1
    assert not neighbours.is_sure(BUCKET)
    assert neighbours.is_sure("another/0")
    one.vouch(BUCKET, 264)
    assert neighbours.is_sure(BUCKET)
    assert neighbours.high_of(BUCKET) == [(log.writer, 264)], "the rest never reached the disk"
    log.close()


def test_in_the_same_boot_what_was_seen_applied_stands(tmp_path: Path) -> None:
    log = Log(tmp_path, "dq-consumer-0", [BUCKET])
    log.high[0] = 265
    (one,) = Neighbours(tmp_path).look()
    one.vouch(BUCKET, 0)
    assert one.high_of(BUCKET) == 265
    log.close()
