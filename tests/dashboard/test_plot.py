"""A line over time in characters."""

from __future__ import annotations

import pytest

from tide_cli.dashboard.plot import Axes, nice_ceiling, plot

AXES = Axes(0.0, 100.0, 1.0, 3.0, lambda value: f"{value:.1f}", "long ago")


def rows(points, width: int = 44, height: int = 6, **more) -> list[str]:
    return [line.plain for line in plot(points, AXES, width, height, **more)]


@pytest.mark.parametrize(("width", "height"), [(44, 6), (16, 3), (120, 30)])
def test_it_fills_its_room(width: int, height: int) -> None:
    lines = plot([(float(second), 2.0) for second in range(100)], AXES, width, height)
    assert len(lines) == height
    assert {line.cell_len for line in lines} == {width}


def test_no_room_no_plot() -> None:
    assert rows([(1.0, 2.0)], width=15) == []
    assert rows([(1.0, 2.0)], height=2) == []


def test_high_values_are_above_low_ones() -> None:
    lines = rows([(0.0, 1.0), (20.0, 1.0), (60.0, 3.0), (80.0, 3.0)], ascii=True)
    assert lines[0].startswith("3.0|") or lines[0].startswith("3.0│")
    assert "*" in lines[0][24:]
    assert "*" not in lines[0][:24]
    assert lines[-2].startswith("1.0")
    assert "*" in lines[-2][4:13]


def test_over_a_time_without_values_no_line_is_drawn() -> None:
    lines = rows([(10.0, 2.0), (11.0, 2.0), (90.0, 2.0)], ascii=True)
    assert sum(line.count("*") for line in lines) == 2
    joined = rows([(10.0, 2.0), (39.0, 2.0)], ascii=True)
    assert sum(line.count("*") for line in joined) == 12  # of 40 columns


def test_marks_stand_where_they_belong() -> None:
    lines = rows([(0.0, 2.0)], marks=[(50.0, "v0001"), (200.0, "v0009")])
    assert lines[-1].index("▲v0001") == 4 + 20
    assert "v0009" not in lines[-1]
    assert lines[0][4 + 20] == "┊"
    close = rows([], marks=[(50.0, "v0001"), (53.0, "v0002")])
    assert close[-1].count("▲") == 2
    assert "▲▲v0002" in close[-1]  # the name that has room
    edges = rows([], marks=[(1.0, "v0001"), (99.0, "v0002")])
    assert edges[-1].split() == ["long", "ago", "─" * 30 + "▲"]
    assert rows([])[-1].split() == ["long", "ago", "─" * 27, "now"]


def test_a_dot_stays_what_it_is_while_time_goes_on() -> None:
    """A second later all has moved by nothing or by one dot to the left."""
    points = [(float(second), 2.0 + second * 37 % 11 / 11) for second in range(200)]

    def drawn(until: float) -> list[str]:
        axes = Axes(until - 160, until, 1.0, 3.0, str, "long ago")
        return [line.plain[4:] for line in plot([p for p in points if p[0] <= until], axes, 44, 6, ascii=True)[:-1]]

    for until in (176.0, 177.0, 178.0, 179.0):  # a dot lasts four seconds
        assert [line[:-1] for line in drawn(180.0)] == [line[:-1] for line in drawn(until + 1)]
    assert [line[1:-1] for line in drawn(180.0)] == [line[:-2] for line in drawn(184.0)]


def test_values_out_of_range_stay_on_the_edge() -> None:
    lines = rows([(10.0, -5.0), (60.0, 99.0)], ascii=True)
    assert "*" in lines[0]
    assert "*" in lines[-2]


@pytest.mark.parametrize(("value", "ceiling"), [(0, 1), (0.3, 0.5), (1, 1), (37, 50), (51, 100), (412, 500)])
def test_nice_ceiling(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)
