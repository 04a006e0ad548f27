"""The first steps of a worker after the fork, before anything of its role is imported.

Still in the master's code, so it lets go of all that is the master's; it never returns into it.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

from dq.core.settings import Settings
from dq.workers.errors import BOOT_ERROR, CRASHED
from dq.workers.sockets import Listeners
from dq.workers.worker import Worker

log = logging.getLogger(__name__)


def become(
    worker: Worker, settings: Settings, listeners: Listeners, lifeline: tuple[int, int]
) -> NoReturn:
    """Live as `worker`, then leave with its exit code, without the master's clean-up."""
    code = BOOT_ERROR
    try:
        os.close(lifeline[1])
        mine = listeners.keep(worker.role.sockets)
        from dq.workers.base import run_worker  # asyncio begins here

        code = run_worker(worker, settings, mine, lifeline[0])
    except BaseException:
        log.critical("%s", worker.name, exc_info=True)
        code = CRASHED if worker.is_running else BOOT_ERROR
    finally:
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)
