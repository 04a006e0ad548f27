"""What a run found, for docs/reliability.md: one line a scene in the file that
DQ_TEST_CHAOS_REPORT names."""

from __future__ import annotations

import os
from pathlib import Path

from tests.chaos.traffic import Reckoning


def write_row(scene: str, rounds: int, found: Reckoning) -> None:
    """A row of a Markdown table; nowhere unless DQ_TEST_CHAOS_REPORT is set."""
    place = os.environ.get("DQ_TEST_CHAOS_REPORT")
    if not place:
        return
    heals = sorted(span for spans in found.heal_s.values() for span in spans)
    heal = f"{heals[len(heals) // 2]:.1f} / {heals[-1]:.1f}" if heals else "-"
    cells = [
        scene,
        str(rounds),
        f"{found.acknowledged:,}",
        str(len(found.lost)),
        str(found.duplicates),
        str(len(found.early)),
        str(len(found.resurrected)),
        heal,
    ]
    with Path(place).open("a") as file:
        file.write(f"| {' | '.join(cells)} |\n")
