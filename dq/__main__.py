"""`python -m dq` is the same as `dq`."""

from __future__ import annotations

from dq.cli import main

if __name__ == "__main__":
    main()
