"""A line over time in a few rows of characters. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from rich.text import Text

LONGEST_GAP = 30.0  # seconds without a value over which no line is drawn, unless told otherwise
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column


@dataclass(frozen=True)
class Axes:
    """What the edges of a plot mean: unix seconds from left to right, values from bottom to top."""

    since: float
    until: float
    low: float
    high: float
    show: Callable[[float], str]
    left: str  # what the left edge is called
    gap: float = LONGEST_GAP


def plot(
    points: Sequence[tuple[float, float]],
    axes: Axes,
    width: int,
    height: int,
    marks: Sequence[tuple[float, str]] = (),
    ascii: bool = False,
) -> list[Text]:
    """Exactly `height` lines of `width` columns: the line, and an axis with the marks (unix seconds, name) below it.

    points: (unix seconds, value), ascending; no line is drawn over a time without values. No lines at all where there
    is no room.
    """
    labels = [axes.show(axes.high), axes.show(axes.low)]
    gutter = max(map(len, labels)) + 1
    columns, rows = width - gutter, height - 1
    if columns < 12 or rows < 2:
        return []
    across, down = (1, 1) if ascii else (2, 4)
    axes = _aligned(axes, columns * across)
    dots = _dots(points, axes, columns * across, rows * down)
    marked = {column: name for moment, name in marks if (column := _column(moment, axes, columns)) is not None}
    lines = []
    for row in range(rows):
        label = labels[0] if row == 0 else labels[1] if row == rows - 1 else ""
        line = Text.assemble((f"{label.rjust(gutter - 1)}│", "dim"))
        cells = [_cell(dots, column, row, across, down) for column in range(columns)]
        empty = [("┊", "magenta") if column in marked else (" ", "") for column in range(columns)]
        lines.append(
            _styled(line, [(cell, "cyan") if cell else other for cell, other in zip(cells, empty, strict=True)])
        )
    return [*lines, _axis(axes.left, marked, gutter, columns)]


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 … above a value."""
    if value <= 0:
        return 1.0
    base = 10.0 ** math.floor(math.log10(value))
    return next(base * step for step in (1.0, 2.0, 5.0, 10.0) if base * step >= value)


def _aligned(axes: Axes, dots: int) -> Axes:
    """Ending at a whole dot: so that with time a dot stays what it is and moves to the left, instead of shimmering."""
    step = (axes.until - axes.since) / dots
    until = math.ceil(axes.until / step) * step
    return replace(axes, since=until - (axes.until - axes.since), until=until)


def _column(moment: float, axes: Axes, columns: int) -> int | None:
    if not axes.since <= moment <= axes.until:
        return None
    return min(columns - 1, int((moment - axes.since) / (axes.until - axes.since) * columns))


def _dots(points: Sequence[tuple[float, float]], axes: Axes, across: int, down: int) -> set[tuple[int, int]]:
    """Dots to set, (x, y) from the upper left."""
    columns: dict[int, list[tuple[float, float]]] = {}
    for moment, value in points:
        column = _column(moment, axes, across)
        if column is not None:
            columns.setdefault(column, []).append((moment, value))
    dots: set[tuple[int, int]] = set()
    before: tuple[int, int, float] | None = None
    for x, members in sorted(columns.items()):
        value = sum(value for _, value in members) / len(members)
        share = (value - axes.low) / (axes.high - axes.low)
        y = round((1 - min(1.0, max(0.0, share))) * (down - 1))
        dots.add((x, y))
        if before is not None and members[0][0] - before[2] <= axes.gap:
            dots |= _between(before[0], before[1], x, y)
        before = (x, y, members[-1][0])
    return dots


def _between(x0: int, y0: int, x1: int, y1: int) -> set[tuple[int, int]]:
    steps = max(x1 - x0, abs(y1 - y0))
    return {(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps)) for i in range(1, steps)}


def _cell(dots: set[tuple[int, int]], column: int, row: int, across: int, down: int) -> str:
    if across == 1:
        return "*" if (column, row) in dots else ""
    bits = sum(_BITS[y][x] for y in range(down) for x in range(across) if (column * across + x, row * down + y) in dots)
    return chr(0x2800 + bits) if bits else ""


def _axis(left: str, marked: dict[int, str], gutter: int, columns: int) -> Text:
    """A mark is named where there is room before the next one; under the left edge's name it is left out."""
    begin = f"{left} " if len(left) + 5 <= columns else ""
    shown = [(column, name) for column, name in sorted(marked.items()) if column >= len(begin)]
    end = columns if shown and shown[-1][0] >= columns - 4 else columns - 4  # a mark there takes the place of "now"
    line = list(begin.ljust(end, "─") + " now"[: columns - end])
    styles = ["dim"] * columns
    for (column, name), (following, _) in pairwise([*shown, (end + 1, "")]):
        text = f"▲{name}" if column + len(name) + 2 <= following else "▲"
        line[column : column + len(text)] = text
        styles[column : column + len(text)] = ["magenta"] * len(text)
    return _styled(Text(" " * gutter), zip(line, styles, strict=True))


def _styled(begin: Text, characters: Iterable[tuple[str, str]]) -> Text:
    """Appends (character, style), those of one style at once."""
    for style, run in groupby(characters, key=lambda pair: pair[1]):
        begin.append("".join(character for character, _ in run), style)
    return begin
