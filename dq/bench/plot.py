"""Cost against waiting jobs as a picture: SVG written by hand, for light and dark pages. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import wrap

from dq.bench.figures import Waiting

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 56, 96
_STEPS = (1, 2, 2.5, 5, 10)
_LINES = 6
_CAPTION_CHARS = 110

_SERIES = (
    ("server_push_ms", "dq-server, push", "#3b6fd4"),
    ("valkey_push_ms", "Valkey, push", "#c8781e"),
    ("valkey_delivery_ms", "Valkey, forward + lease + ack", "#2d9a6a"),
)
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.grid{stroke:#8886;stroke-width:1}"
    ".small{font-size:11px}@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


def plot_of(levels: Sequence[Waiting], caption: str) -> str:
    """An SVG document; `levels` with at least one of them, `caption` says where it was measured."""
    ordered = sorted(levels, key=lambda one: one.waiting)
    across = _Across(ordered[0].waiting, ordered[-1].waiting)
    top = nice_top(max(getattr(one, name) for one in ordered for name, _, _ in _SERIES))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>CPU for 1,000 jobs against waiting jobs</title><style>{_STYLE}</style>",
        f'<text x="{_LEFT}" y="20">CPU for 1,000 jobs, ms, while so many others wait</text>',
        *_grid(ordered, across, top),
        *_lines(ordered, across, top),
        *_captions(caption),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _captions(caption: str) -> Iterator[str]:
    for number, line in enumerate(wrap(caption, _CAPTION_CHARS)):
        y = _HEIGHT - 24 + 14 * number
        yield f'<text class="small" x="{_LEFT}" y="{y}">{escape(line)}</text>'


def nice_top(highest: float) -> float:
    """Where the axis ends: a round number, not below `highest`."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in _STEPS if step * power >= highest)


class _Across:
    """Waiting jobs to pixels, on a logarithmic axis."""

    def __init__(self, first: int, last: int) -> None:
        self._low = math.log10(max(first, 1))
        self._span = (math.log10(max(last, 1)) - self._low) or 1.0

    def __call__(self, waiting: int) -> float:
        share = (math.log10(max(waiting, 1)) - self._low) / self._span
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _up(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(levels: Sequence[Waiting], across: _Across, top: float) -> Iterator[str]:
    for number in range(_LINES):
        value = top * number / (_LINES - 1)
        y = _up(value, top)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    for level in levels:
        x, y = across(level.waiting), _HEIGHT - _BOTTOM + 20
        anchor = "end" if x > _WIDTH - _RIGHT - 30 else "middle"
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{level.waiting:,}</text>'


def _lines(levels: Sequence[Waiting], across: _Across, top: float) -> Iterator[str]:
    for number, (name, label, colour) in enumerate(_SERIES):
        points = [(across(one.waiting), _up(getattr(one, name), top)) for one in levels]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        x, y = _LEFT + number * 210, _HEIGHT - 50
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{y}">{escape(label)}</text>'
