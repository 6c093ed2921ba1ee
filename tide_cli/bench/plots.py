"""Plots as SVG text for a page, drawn by matplotlib in colours that the page chooses, so that light and dark both work.

matplotlib is in the dependency group `bench`; without it every plot is None.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import Any

# What matplotlib draws in, and the CSS variable that the page puts in its place. No other element has these colours.
_INK, _LINE, _PAPER = "#010203", "#040506", "#070809"
_SERIES = tuple(f"#0a0b{place:02x}" for place in range(6))
_VARIABLES = {_INK: "--ink", _LINE: "--line", _PAPER: "--paper"} | {
    color: f"--series-{i}" for i, color in enumerate(_SERIES)
}

_SIZE = (7.2, 3.2)  # inches, 72 units each
_DASHES = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))  # line, marker of its points
_MARKS = ((":", "", 1.0), ("--", "^", 0.0), ("-.", "v", 0.2))  # line, marker at its foot, where its words stand


@dataclass(frozen=True)
class Series:
    """One bar in each group. values: None where there is none; low, high: ends of the error bars; color: which one of
    the page's, so that a thing has the same in every plot; None: by its place.
    """

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    color: int | None = None


def has_plots() -> bool:
    return find_spec("matplotlib") is not None


def bars(groups: Sequence[str], series: Sequence[Series], *, unit: str, at: float | None = None) -> str | None:
    """Bars side by side in each group. at: a value to mark with a line across."""

    def draw(axes: Any) -> None:
        width = 0.8 / max(len(series), 1)
        highest = max((value for one in series for value in one.values if value is not None), default=0.0)
        for place, one in enumerate(series):
            xs = [group + (place - (len(series) - 1) / 2) * width for group in range(len(groups))]
            shown = [(xs[i], i, value) for i, value in enumerate(one.values) if value is not None]
            places, heights = [x for x, _, _ in shown], [height for _, _, height in shown]
            axes.bar(places, heights, width * 0.9, color=_color(one.color, place), label=one.name)
            if one.low and one.high:
                reach = [[_distance(height, ends[i]) for _, i, height in shown] for ends in (one.low, one.high)]
                axes.errorbar(places, heights, reach, fmt="none", color=_INK, capsize=2, linewidth=1)
            for x, _, height in shown:
                inside = height > highest / 8
                axes.annotate(
                    f"{height:,.3g}",
                    (x, 0 if inside else height),
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                    color=_PAPER if inside else _INK,
                )
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylabel(unit)
        if at is not None:
            axes.axhline(at, color=_INK, linewidth=1, linestyle="--")

    return _svg(draw, f"Bars of {unit} by {', '.join(groups)}", legend=len(series) > 1)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_unit: str,
    unit: str,
    marks: Mapping[str, Sequence[tuple[float, str]]] | None = None,
    dots: bool = False,
    colors: Mapping[str, int] | None = None,
    dashes: Mapping[str, int] | None = None,
) -> str | None:
    """One line through the points of each series, (x, y).

    marks: kind to (x, words) of its vertical lines; up to three kinds are told apart, each with its place in the
    legend. dots: mark the points, and no x between whole numbers. colors: see Series; dashes: which sort of line, the
    unbroken one where none is said.
    """
    kinds = {kind: found for kind, found in (marks or {}).items() if found}

    def draw(axes: Any) -> None:
        for place, (name, points) in enumerate(series.items()):
            color = _color((colors or {}).get(name), place)
            line, marker = _DASHES[(dashes or {}).get(name, 0) % len(_DASHES)]
            axes.plot([x for x, _ in points], [y for _, y in points], color=color, label=name, linestyle=line,
                      marker=marker if dots else None, markersize=4)  # fmt: skip
        for kind, style in zip(marks or {}, _MARKS, strict=False):
            _mark(axes, kind, kinds.get(kind, ()), *style)
        if dots:
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(x_unit)
        axes.set_ylabel(unit)

    return _svg(draw, f"{unit} by {x_unit}", legend=len(series) > 1 or bool(kinds))


def _mark(axes: Any, kind: str, found: Sequence[tuple[float, str]], line: str, marker: str, height: float) -> None:
    """Words below the top are upright: lines that stand close together keep theirs apart."""
    low = {"rotation": 90, "va": "bottom"} if height < 1 else {}
    for place, (x, words) in enumerate(found):
        label = None if place else kind
        axes.plot([x, x], [0, 1], transform=axes.get_xaxis_transform(), label=label, color=_INK, linewidth=1,
                  linestyle=line, marker=marker, markersize=5, markevery=[0], clip_on=False)  # fmt: skip
        axes.annotate(words, (x, height), (2, 8 if low else -8), xycoords=("data", "axes fraction"),
                      textcoords="offset points", fontsize=7, color=_INK, **low)  # fmt: skip


def _color(chosen: int | None, place: int) -> str:
    return _SERIES[(place if chosen is None else chosen) % len(_SERIES)]


def _distance(height: float, end: float | None) -> float:
    """Length of an error bar; 0 where its end is unknown."""
    return 0.0 if end is None else abs(end - height)


def _svg(draw: Callable[[Any], None], label: str, *, legend: bool) -> str | None:
    if not has_plots():
        return None
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none",  # text stays text, in the page's own font
        "svg.hashsalt": "tide",  # the same figures give the same page
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _LINE,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "grid.color": _LINE,
        "font.size": 9,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.grid(axis="y", linewidth=0.5)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        draw(axes)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        if legend:
            figure.legend(loc="outside upper left", ncols=4, frameon=False)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return _for_page(out.getvalue(), label)


def _for_page(svg: str, label: str) -> str:
    """The element alone, with the page's colours and fonts."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, f"var({variable})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
