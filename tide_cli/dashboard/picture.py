"""A line over time as a picture in a file, where matplotlib is installed (group bench)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tide_cli.errors import TideError, reason


def draw(
    points: Sequence[tuple[float, float]], marks: Sequence[tuple[float, str]], title: str, gap: float, file: Path
) -> None:
    """Write `file`, an SVG or a PNG by its ending. TideError without matplotlib, or where it cannot be written.

    points: (unix seconds, value), ascending, no line over more than `gap` seconds without one; marks: (unix seconds,
    name), named once each in the legend.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        remedy = "`.venv/bin/pip install --group bench` in TIDE's folder; without --output the terminal shows the plot"
        raise TideError("there is no matplotlib to draw with", remedy=remedy) from None
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.add_subplot()
    times, values = _with_gaps(points, gap)
    axes.plot(times, values, linewidth=1.2)
    axes.set_title(title)
    axes.margins(x=0)
    axes.grid(alpha=0.3)
    colours = {name: f"C{number}" for number, name in enumerate(sorted({name for _, name in marks}), start=1)}
    for moment, name in marks:
        line = axes.axvline(datetime.fromtimestamp(moment), color=colours[name], linestyle=":", linewidth=1)
        if name not in {label for _, label in zip(*axes.get_legend_handles_labels(), strict=True)}:
            line.set_label(name)
    if marks:
        axes.legend(loc="upper left")
    try:
        figure.savefig(file)
    except OSError as error:
        raise TideError(f"cannot write {file}", why=reason(error)) from None


def _with_gaps(points: Sequence[tuple[float, float]], gap: float) -> tuple[list[datetime], list[float]]:
    times: list[datetime] = []
    values: list[float] = []
    before = None
    for moment, value in points:
        if before is not None and moment - before > gap:
            times.append(datetime.fromtimestamp(before))
            values.append(math.nan)
        times.append(datetime.fromtimestamp(moment))
        values.append(value)
        before = moment
    return times, values
