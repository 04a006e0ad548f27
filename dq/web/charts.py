"""Small charts as SVG, drawn on the server: plain numbers in, markup out.

Colours come from the style sheet by class, since the pages allow no inline style. Shapes stretch
to the width they get; texts would stretch with them, so a template writes them beside the chart.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH = 600.0


def sparkline(values: Sequence[float], label: str, *, height: int = 40) -> Markup:
    """A line through `values`, from left to right; `label` is what a screen reader says."""
    if len(values) < 2:
        return _svg("spark", height, label, Markup(""))
    top = max(*values, 0) or 1
    step = _WIDTH / (len(values) - 1)
    points = " ".join(
        f"{place * step:.1f},{height - 1 - max(value, 0) / top * (height - 2):.1f}"
        for place, value in enumerate(values)
    )
    area = Markup('<polygon class="area" points="0,{} {} {},{}"/>').format(
        height, points, f"{_WIDTH:.0f}", height
    )
    line = Markup('<polyline class="line" points="{}"/>').format(points)
    return _svg("spark", height, label, area + line)


def bars(
    values: Sequence[float],
    label: str,
    *,
    titles: Sequence[str] = (),
    height: int = 80,
    tones: Sequence[str] = (),
) -> Markup:
    """A bar for each value. `titles`: what hovering says; `tones`: a class each, "" for none."""
    stacks = [[value] for value in values]
    return stacked_bars(stacks, label, titles=titles, height=height, tones=[tones])


def stacked_bars(
    stacks: Sequence[Sequence[float]],
    label: str,
    *,
    titles: Sequence[str] = (),
    height: int = 80,
    tones: Sequence[Sequence[str]] = (),
) -> Markup:
    """A column for each stack of values, the first at the bottom.

    `tones`: for each layer either one class, or one for every column.
    """
    top = max((sum(max(one, 0) for one in stack) for stack in stacks), default=0) or 1
    width = _WIDTH / max(len(stacks), 1)
    shapes = Markup("")
    for place, stack in enumerate(stacks):
        y = float(height)
        column = Markup("")
        for layer, value in enumerate(stack):
            part = max(value, 0) / top * (height - 2)
            part = max(part, 1.5) if value > 0 else 0.0
            y -= part
            tone = _tone(tones, layer, place)
            column += _rect(place * width, y, width * 0.8, part, f"bar {tone}".strip())
        if place < len(titles):
            hover = _rect(place * width, 0, width, height, "hover")
            column = Markup("<g><title>{}</title>{}{}</g>").format(titles[place], hover, column)
        shapes += column
    return _svg("bars", height, label, shapes)


def _tone(tones: Sequence[Sequence[str]], layer: int, place: int) -> str:
    if layer >= len(tones) or not tones[layer]:
        return ""
    row = tones[layer]
    return row[place] if place < len(row) else row[-1]


def _rect(x: float, y: float, width: float, height: float, tone: str) -> Markup:
    if height <= 0:
        return Markup("")
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        tone, f"{x:.1f}", f"{y:.1f}", f"{width:.1f}", f"{height:.1f}"
    )


def _svg(kind: str, height: int, label: str, shapes: Markup) -> Markup:
    return Markup(
        '<svg class="chart {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(kind, f"{_WIDTH:.0f}", height, label, shapes)
