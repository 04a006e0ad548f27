"""A real master with toy roles: `python -m tests.workers.toy_master '{"roles": …}'`.

`roles` is a list of arguments of Role, in which `count` is a number or a setting's name;
`limits` has those of Limits.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from dq.core.errors import DqError
from dq.core.settings import Settings, load_settings
from dq.workers.master import Master
from dq.workers.process import Limits
from dq.workers.roles import Role


def make_role(title: str, module: str, count: int | str = 1, **rest: Any) -> Role:
    def wanted(settings: Settings) -> int:
        return int(getattr(settings, count)) if isinstance(count, str) else count

    return Role(title, f"tests.workers.toys.{module}", wanted, numbered=True, **rest)


def load() -> Settings:
    return load_settings(None, os.environ)


def main() -> int:
    plan = json.loads(sys.argv[1])
    roles = [make_role(**role) for role in plan["roles"]]
    limits = Limits(**plan.get("limits", {}))
    master = Master(load, roles={role.title: role for role in roles}, limits=limits)
    try:
        master.run()
    except DqError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
