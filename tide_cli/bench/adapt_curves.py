"""The curves of a shift experiment's report: acceptance length and output of each piece of traffic, with its swaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tide_cli.bench import page
from tide_cli.bench.adapt_figures import NO_POOL, OWN, POLICY, STATIC, TIDE
from tide_cli.bench.plots import lines

COLORS = {STATIC: 0, TIDE: 1, OWN: 2, POLICY: 3, NO_POOL: 4}  # in every plot
_BEGINS, _SERVED, _BACK = "a domain begins", "a draft comes into service", "a draft is taken back"


def curves(adapt: Mapping[str, Any]) -> Iterator[str]:
    """A figure each. adapt: of `adapt_report.adapt_figures`."""
    points = adapt["series"]
    for figure, unit in (("al", "acceptance length"), ("tok_s", "output tok/s")):
        drawn = {
            arm: [(point["tokens"], point["arms"][arm][figure]) for point in points if point["arms"][arm][figure]]
            for arm in (points[0]["arms"] if points else ())
        }
        if drawn:
            svg = lines(
                drawn,
                x_unit="completion tokens of TIDE's arm",
                unit=unit,
                marks=_marks(adapt, "tokens"),
                dots=True,
                colors=COLORS,
            )
            yield page.plot(svg, f"{unit.capitalize()} of each piece of traffic; swaps are those of TIDE's arm.")


def _marks(adapt: Mapping[str, Any], axis: str) -> dict[str, list[tuple[float, str]]]:
    points = adapt["series"]
    swaps = [event for event in adapt["events"] if event["kind"] == "swap"]
    ends = {name: [0, *(point[name] for point in points)] for name in ("seconds", axis)}
    # within a piece tokens are not counted one by one: they come evenly over its seconds
    places = np.interp([one["seconds"] for one in swaps], ends["seconds"], ends[axis])
    placed = [(float(x), _version(one), one["back"]) for x, one in zip(places, swaps, strict=True)]
    return {
        _BEGINS: [
            (start, point["phase_name"])
            for start, point in zip(ends[axis], points, strict=False)
            if point["piece"] == 0
        ],
        _SERVED: [(x, version) for x, version, back in placed if not back],
        _BACK: [(x, version) for x, version, back in placed if back],  # with the one that returns
    }


def _version(swap: Mapping[str, Any]) -> str:
    return "" if swap["version"] is None else f"v{swap['version']:04d}"
