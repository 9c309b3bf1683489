"""The geometry of charts."""

from __future__ import annotations

import math

import pytest
from bulkinfer.insight.report.charts import HEIGHT, WIDTH, axis_ticks, column_chart, line_chart, thinned, tick_text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 25, 50, 75, 100]),
        (0, 0.06, [0, 0.02, 0.04, 0.06]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0, 0, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_ticks_are_round_and_reach_both_ends(low: float, high: float, ticks: list[float]) -> None:
    assert axis_ticks(low, high) == pytest.approx(ticks)


def test_points_lie_where_their_values_are() -> None:
    chart = line_chart("text", [("one", [(0, 0), (5, 50), (10, 100)])], x_name="x", y_name="y")
    points = [tuple(map(float, point.split(","))) for point in chart.lines[0].points.split()]
    assert points == [(0, HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH, 0)]
    assert [(tick.text, tick.percent) for tick in chart.y_ticks][-1] == ("100", 100)


def test_values_that_are_not_finite_are_left_out() -> None:
    chart = line_chart("text", [("one", [(0, 1), (1, math.nan), (2, math.inf), (3, 1)]), ("none", [(0, math.nan)])],
                       x_name="x", y_name="y")  # fmt: skip
    assert len(chart.lines) == 1
    assert len(chart.lines[0].points.split()) == 2
    assert "nan" not in str(chart)


def test_long_lines_are_thinned_to_means() -> None:
    points = [(float(i), float(i % 2)) for i in range(5000)]
    few = thinned(points)
    assert len(few) == 500
    assert all(y == 0.5 for _, y in few)
    assert thinned(points[:10]) == points[:10]
    assert thinned([]) == []


def test_columns_have_the_heights_of_their_counts() -> None:
    chart = column_chart("text", [0, 5, 10, 0], x_name="x", y_name="y")
    assert [bar.height for bar in chart.bars] == pytest.approx([0, HEIGHT / 2, HEIGHT, 0])
    assert chart.bars[1].text == "0.25 to 0.50: 5"


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (1500, "1,500"), (12_000, "12k"), (2.5e6, "2.5M"), (3e9, "3G")])
def test_ticks_are_short(value: float, text: str) -> None:
    assert tick_text(value) == text
