"""The shims, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.powercut import SOURCE, compile_shim, compiler


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """powercut.c, compiled."""
    if compiler() is None:
        pytest.skip("a C compiler builds the power-cut shim; install gcc and libc6-dev")
    return compile_shim(SOURCE, tmp_path_factory.mktemp("shim"))
