"""The geometry of charts: from numbers to the coordinates and ticks that templates/macros.html draws as SVG.

Every chart is drawn on a field of WIDTH x HEIGHT that the page stretches to its size; texts stay outside of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 300
_MOST_POINTS = 500  # of a line; of more, neighbours are averaged
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its text and its place, in percent of the axis."""

    text: str
    percent: float


@dataclass(frozen=True)
class Line:
    """One line: its name and its points as the attribute `points` of a polyline. `index` chooses its looks."""

    name: str
    points: str
    index: int


@dataclass(frozen=True)
class Bar:
    """One column: x, y, width and height in the field, and the text that a pointer shows."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Lines or columns with ticks; `text` says in words what the chart shows, for those who cannot see it."""

    text: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_name: str
    y_name: str
    lines: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()


def line_chart(
    text: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    *,
    x_name: str,
    y_name: str,
    unit: str = "",
    x_end: float = 0.0,
) -> Chart:
    """Lines through points (x, y). Points that are not finite are left out.

    The x axis goes from 0 to `x_end`, or to the last point if that is further; the y axis from 0, or the lowest value below it.
    """
    finite = [(name, [p for p in points if all(map(math.isfinite, p))]) for name, points in series]
    every = [point for _, points in finite for point in points] or [(0.0, 0.0)]
    xs, ys = [x for x, _ in every], [y for _, y in every]
    left, right = min(0.0, *xs), max(x_end, 1e-9, *xs)
    y_ticks = axis_ticks(min(0.0, *ys), max(ys))
    low, high = y_ticks[0], y_ticks[-1]
    lines = tuple(
        Line(name, " ".join(_point(x, y, left, right, low, high) for x, y in thinned(points)), index)
        for index, (name, points) in enumerate(finite)
        if points
    )
    inner = [value for value in axis_ticks(left, right) if left <= value <= right]
    return Chart(
        text,
        tuple(Tick(tick_text(value), 100 * (value - left) / (right - left)) for value in inner),
        tuple(Tick(tick_text(value) + unit, 100 * (value - low) / (high - low)) for value in y_ticks),
        x_name,
        y_name,
        lines=lines,
    )


def column_chart(text: str, counts: Sequence[int], *, x_name: str, y_name: str) -> Chart:
    """Columns of one width for counts over the range 0 to 1."""
    y_ticks = axis_ticks(0, max([*counts, 1]))
    high, width, bars = y_ticks[-1], WIDTH / len(counts), []
    for index, count in enumerate(counts):
        height = HEIGHT * count / high
        start, end = index / len(counts), (index + 1) / len(counts)
        shown = f"{start:.2f} to {end:.2f}: {count:,}"
        bars.append(Bar(round(index * width + 2, 1), round(HEIGHT - height, 2), round(width - 4, 1), round(height, 2), shown))
    x_ticks = tuple(Tick(f"{value:g}", 100 * value) for value in (0, 0.25, 0.5, 0.75, 1))
    ticks = tuple(Tick(tick_text(value), 100 * value / high) for value in y_ticks if value == int(value))
    return Chart(text, x_ticks, ticks, x_name, y_name, bars=tuple(bars))


def axis_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about `most` of them."""
    if not high > low:
        high = low + 1
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in _STEPS if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def tick_text(value: float) -> str:
    """A number on an axis, short: 12k, 1.5M, 0.25."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:g}" if abs(value) < 1000 else f"{value:,.0f}"


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most _MOST_POINTS points: the means of groups of neighbours."""
    size = -(-len(points) // _MOST_POINTS)
    groups = (points[start : start + size] for start in range(0, len(points), size or 1))
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _point(x: float, y: float, left: float, right: float, low: float, high: float) -> str:
    return f"{WIDTH * (x - left) / (right - left):.1f},{HEIGHT * (1 - (y - low) / (high - low)):.1f}"
