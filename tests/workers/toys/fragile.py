"""Can't start while there is a file `break` in the data folder."""

from __future__ import annotations

from dq.workers.base import Context
from tests.workers.toys import steady


async def run(ctx: Context) -> None:
    if (ctx.settings.data_dir / "break").exists():
        raise RuntimeError("the cup is broken")
    await steady.run(ctx)
