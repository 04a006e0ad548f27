"""Charts: numbers in, well-formed and harmless SVG out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dq.web.charts import bars, sparkline, stacked_bars

RECT = "rect"


def rects(svg: str, tone: str = "bar") -> list[dict[str, str]]:
    tree = ElementTree.fromstring(svg)
    return [one.attrib for one in tree.iter(RECT) if tone in one.attrib["class"].split()]


def test_bars_are_as_high_as_their_values() -> None:
    heights = [float(one["height"]) for one in rects(bars([1, 2, 0, 4], "x", height=82))]
    assert heights == [20.0, 40.0, 80.0]


def test_a_small_value_is_still_seen_and_nothing_is_nothing() -> None:
    small, large = rects(bars([1, 1_000_000], "x"))
    assert float(small["height"]) == 1.5 < float(large["height"])
    assert rects(bars([0, 0], "x")) == []


@pytest.mark.parametrize("values", [[], [0], [5], [0, 0, 0], [-1, -5], [1e300, 1], [3, 1, 2]])
def test_any_numbers_make_a_chart(values: list[float]) -> None:
    for svg in (bars(values, "x"), sparkline(values, "x"), stacked_bars([values], "x")):
        ElementTree.fromstring(svg)
        assert "nan" not in svg and "inf" not in svg


def test_stacks_stand_on_each_other_with_their_tones() -> None:
    svg = stacked_bars([[1, 1], [2, 0]], "x", height=42, tones=[["good"], ["bad"]])
    first, second = rects(svg, "good")
    (above,) = rects(svg, "bad")
    assert (float(first["y"]), float(above["y"]), float(second["y"])) == (22.0, 2.0, 2.0)


def test_labels_and_titles_are_escaped() -> None:
    svg = bars([1], '"><script>', titles=["</title><b>"])
    tree = ElementTree.fromstring(svg)
    assert tree.attrib["aria-label"] == '"><script>'
    assert next(tree.iter("title")).text == "</title><b>"
    assert "style=" not in svg
