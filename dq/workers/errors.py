"""What can keep the processes from starting, and the exit codes a worker tells its master with."""

from __future__ import annotations

from dq.core.errors import DqError

# Only a worker that could not start may end the master, so it needs a code of its own.
BOOT_ERROR = 3
CRASHED = 1
ORPHANED = 4


class StartRefused(DqError):
    """dq can't start here; the text names the reason and the remedy."""
