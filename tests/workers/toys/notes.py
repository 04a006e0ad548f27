"""Lines that toy workers leave for the test that started them."""

from __future__ import annotations

from dq.workers.base import Context


def note(ctx: Context, line: str) -> None:
    with (ctx.settings.data_dir / "notes").open("a") as file:
        file.write(line + "\n")
