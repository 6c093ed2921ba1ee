"""The curves of a shift experiment's report: each piece of traffic with its swaps, and the output by concurrency."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tide_cli.bench import page
from tide_cli.bench.adapt_figures import NO_POOL, OWN, PLAIN, POLICY, STATIC, TIDE
from tide_cli.bench.plots import lines

COLORS = {STATIC: 0, TIDE: 1, OWN: 2, POLICY: 3, NO_POOL: 4, PLAIN: 5}  # in every plot
_FIGURES = (("al", "acceptance length"), ("tok_s", "output tok/s"))
_AXES = (("tokens", "completion tokens of TIDE's arm"), ("seconds", "seconds that TIDE's arm was answering"))
_BEGINS, _SERVED, _BACK = "domain begins", "swap", "draft taken back"


def curves(adapt: Mapping[str, Any]) -> Iterator[str]:
    """A figure each. adapt: of `adapt_report.adapt_figures`."""
    points = adapt["series"]
    loads = list(dict.fromkeys(point["concurrency"] for point in points))
    series = {
        (arm, load): f"{arm}, {load} at a time" if len(loads) > 1 else arm
        for arm in (points[0]["arms"] if points else ())
        for load in loads
    }
    for figure, unit in _FIGURES:
        for axis, x_unit in _AXES:
            drawn = {
                name: [
                    (point[axis], point["arms"][arm][figure])
                    for point in points
                    if point["concurrency"] == load and point["arms"][arm][figure]
                ]
                for (arm, load), name in series.items()
            }
            if drawn:
                svg = lines(
                    drawn,
                    x_unit=x_unit,
                    unit=unit,
                    marks=_marks(adapt, axis),
                    dots=True,
                    colors={name: COLORS[arm] for (arm, _), name in series.items()},
                    dashes={name: loads.index(load) for (_, load), name in series.items()},
                )
                words = f"{unit.capitalize()} of each piece of traffic over {axis}; swaps are those of TIDE's arm."
                yield page.plot(svg, words)


def by_concurrency(domains: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A figure of the comparison at the end, where it was made at several concurrencies; see `domain_figures`."""
    loads = sorted({int(load) for of in domains.values() for load in of["at"]})
    if len(loads) < 2:
        return
    rates = {
        (arm, load, name): of["at"].get(str(load), {}).get(f"{arm}_tok_s")
        for arm in (STATIC, TIDE, POLICY, PLAIN)
        for load in loads
        for name, of in domains.items()
    }
    arms = list(dict.fromkeys(arm for (arm, _, _), rate in rates.items() if rate))
    # a mean over other domains at another concurrency would be no comparison
    names = [name for name in domains if all(rates[arm, load, name] for arm in arms for load in loads)]
    if names:
        drawn = {
            arm: [(load, statistics.geometric_mean(rates[arm, load, name] for name in names)) for load in loads]
            for arm in arms
        }
        svg = lines(drawn, x_unit="requests at a time", unit="output tok/s", dots=True, colors=COLORS)
        words = f"Output on held-out prompts by concurrency: the geometric mean over {', '.join(names)}."
        yield page.plot(svg, words)


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
