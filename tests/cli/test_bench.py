"""`dq bench`: it measures what was asked, and what it shows is what it measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from dq.bench.figures import (
    Callbacks,
    Comparison,
    Idle,
    Lateness,
    Memory,
    Pushes,
    Run,
    Spread,
    Waiting,
    compare,
    percentile,
)
from dq.bench.machine import Machine
from dq.bench.plot import nice_top, plot_of
from dq.bench.pushes import take_turns
from dq.bench.report import report_of
from dq.bench.run import Result, what_is_wrong
from tests.cli.command import Done

MACHINE = Machine(
    date="2026-11-21T06:00Z",
    dq="1.2.3",
    cpu="A <fast> processor",
    cores=2,
    memory_bytes=8 * 2**30,
    kernel="Linux 6.1",
    python="3.11.9",
    valkey="9.1.2",
    disk="ext4",
    load=0.25,
)
VERSUS = Comparison(Run(20_000, 30), Run(10_000, 90), Spread(2, 1.9, 2.2), Spread(3, 2, 4), 3)
SINGLES, BATCHES = {"server": 30.0, "valkey": 8.5}, {"server": 10.0, "valkey": 8.25}
LATE = Lateness(200, 199.6, 3_000, 1.25, 5.5, 9.75, lost=0, early=0, repeated=0)
LEVELS = [
    Waiting(1_000, 31.5, 4.5, 6.25, 0.25, 1.75, lost=0, early=0),
    Waiting(1_000_000, 32.5, 5.5, 8.25, 0.5, 3.25, lost=0, early=0),
]


def a_result() -> Result:
    return Result(
        MACHINE,
        Pushes(50, 400, 20_000, VERSUS, VERSUS, VERSUS, lost=0),
        Callbacks(20_000, VERSUS, SINGLES, 38.5, BATCHES, 18.25, 0, 0, 0),
        [LATE],
        Memory(100_000, 64, 228.4, lost=0),
        Idle(20.0, {"server": 0.5, "valkey": 0.25}, 0.75),
        LEVELS,
    )


def figures_in(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a document with its path."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from figures_in(one, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from figures_in(one, f"{path}[]")
    else:
        yield path, value


@pytest.mark.time_limit(240)
def test_a_quick_bench_has_every_figure_and_loses_nothing(tmp_path: Path) -> None:
    picture = tmp_path / "waiting.svg"
    words = ("--rate", "100,200", "--waiting", "500", "--plot", str(picture))
    folder = tmp_path / "own"
    folder.mkdir()
    done = Done(folder, "bench", "--quick", "--json", *words, TMPDIR=str(folder))
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)

    expected = {path for path, _ in figures_in(msgspec.to_builtins(a_result()))}
    kinds = {"server", "timer", "consumer", "journal", "checker", "admin", "master", "valkey"}
    assert set(told["callbacks"]["life_cpu_ms"]) == set(told["idle"]["percent"]) == kinds
    found = dict(figures_in(told))
    assert expected - found.keys() == set()
    bad = ("lost", "early")
    assert [path for path, value in found.items() if path.endswith(bad) and value] == []
    assert told["wrong"] == []

    assert [one["rate"] for one in told["lateness"]] == [100, 200]
    assert all(0 <= one["p50_ms"] <= one["p99_ms"] <= one["max_ms"] for one in told["lateness"])
    assert told["pushes"]["single"]["dq"]["per_s"] > 0
    assert told["callbacks"]["life_cpu_all_ms"] > 0
    assert told["callbacks"]["life_of_batches_cpu_all_ms"] > 0
    assert 100 < told["memory"]["bytes_a_job"] < 1_000
    assert [one["waiting"] for one in told["waiting"]] == [500]
    assert 0 < told["waiting"][0]["hand_over_s"] < 30
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")
    assert list(folder.iterdir()) == []


def test_only_what_was_asked_is_measured_and_its_folder_is_kept(tmp_path: Path) -> None:
    words = ("--quick", "--only", "memory", "--jobs", "300", "--keep", "--folder", ".")
    done = Done(tmp_path, "bench", *words)
    assert done.code == 0, done.err
    assert "memory, 300 waiting jobs" in done.out
    assert "callbacks" not in done.out
    (folder,) = tmp_path.iterdir()
    assert done.err == f"left in {folder.resolve()}\n"
    assert (folder / "data" / "log").is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "pushs"], "'pushs' is none of pushes, callbacks"),
        (["--rate", "fast"], "'fast' is no list of numbers"),
        (["--waiting", "0"], "'0' is no list of numbers"),
        (["--plot", "a.svg"], "--plot draws what --waiting measures"),
        (["--folder", "nowhere"], "does not exist"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = Done(tmp_path, "bench", *words)
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, 0.0),
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0, 3.0], 50, 2.0),
        ([float(n) for n in range(1, 101)], 99, 99.0),
        ([float(n) for n in range(1, 101)], 100, 100.0),
        ([float(n) for n in range(1, 101)], 0, 1.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_ratios_are_of_runs_of_the_same_round() -> None:
    ours = [Run(200, 10), Run(100, 20), Run(300, 10)]
    bare = [Run(100, 30), Run(100, 20), Run(100, 20)]
    found = compare(ours, bare)
    assert found.rate_ratio == Spread(2, 1, 3)
    assert found.cpu_ratio == Spread(2, 1, 3)
    assert found.dq == Run(200, 10)
    assert found.rounds == 3


def test_a_run_too_short_for_the_kernels_clock_has_no_ratio() -> None:
    assert compare([Run(100, 0)], [Run(50, 10)]).cpu_ratio.median == 0


def test_the_sides_take_turns_at_being_first_and_the_warm_up_does_not_count() -> None:
    calls: list[str] = []

    def side(name: str, per_s: float) -> Any:
        def run(prefix: str) -> Run:
            calls.append(f"{name}{prefix}")
            return Run(1e9 if prefix == "0" else per_s, 1)

        return run

    found = take_turns(side("dq", 20), side("bare", 10), 2, lambda _: None)
    assert calls == ["bare0", "dq0", "dq1", "bare1", "bare2", "dq2"]
    assert (found.dq.per_s, found.bare.per_s, found.rounds) == (20, 10, 2)


def test_the_report_shows_every_figure() -> None:
    report = report_of(a_result())
    for text in (
        "dq 1.2.3 on A <fast> processor, 2 cores, 8.0 GB, ext4, Linux 6.1, Python 3.11.9, "
        "Valkey 9.1.2; 2026-11-21T06:00Z, load 0.25",
        "20,000/s",
        "(1.90 to 2.20)",
        "38.5",
        "9.8 ms",
        "228 bytes a job, body 64",
        "0.75",
        "1,000,000",
        "3.2 s",
        "nothing lost, nothing early",
    ):
        assert text in report
    assert max(map(len, report.splitlines()[1:])) <= 100


def test_what_was_not_measured_is_not_shown() -> None:
    assert report_of(Result(MACHINE)).splitlines()[1:] == ["", "nothing lost, nothing early"]


def test_a_lost_job_and_an_early_callback_are_told() -> None:
    result = a_result()
    result.lateness = [msgspec.structs.replace(LATE, early=2)]
    result.memory = Memory(100_000, 64, 228.4, lost=1_500)
    result.wrong = what_is_wrong(result)
    assert result.wrong == ["memory: 1,500 jobs lost", "lateness at 200/s: 2 callbacks early"]
    report = report_of(result)
    assert "WRONG: memory: 1,500 jobs lost" in report
    assert "nothing lost" not in report


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (0.03, 0.05), (1, 1), (1.1, 2), (24, 25), (31.5, 50), (51, 100)]
)
def test_the_axis_ends_at_a_round_number(highest: float, top: float) -> None:
    assert nice_top(highest) == pytest.approx(top)


def test_the_plot_draws_a_line_for_each_cost_and_escapes_its_caption() -> None:
    picture = plot_of(list(reversed(LEVELS)), "on <this> & that")
    root = ElementTree.fromstring(picture)
    lines = [one.attrib["points"].split() for one in root if one.tag.endswith("polyline")]
    assert [len(points) for points in lines] == [2, 2, 2]
    for points in lines:
        (left, low), (right, high) = (map(float, point.split(",")) for point in points)
        assert left < right  # fewer waiting jobs stand left
        assert low > high  # dearer stands higher
    texts = [one.text for one in root.iter() if one.text]
    assert "on <this> & that" in texts
    assert "1,000,000" in texts


def test_a_plot_of_one_level_can_be_drawn() -> None:
    assert "<circle" in plot_of(LEVELS[:1], "")
