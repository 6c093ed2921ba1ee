"""What the draft brings: acceptance now and over time, and the speed-up against plain decoding."""

from __future__ import annotations

import math

from rich.text import Text

from tide_cli.dashboard.panels.engine import SPAN
from tide_cli.dashboard.plot import Axes, plot
from tide_cli.dashboard.view import LABEL, View, cleaned, fitted, labelled, wrapped
from tide_cli.dashboard.words import DASH, length, rate

_LEAST_PLOT = 3  # rows
_DOMAINS = 6  # shown at most
_MARKED = {"swap", "rollback"}


def lines(view: View, width: int, height: int) -> list[Text]:
    if view.get("live", "draft_steps") is None and view.get("speculation") is None and _off(view):
        return fitted([Text("off: no draft is served", "dim")], width, height, view.ascii)
    above = [
        labelled("accepted", (length(view.get("load", "acceptance_length")), "bold"), " a step", _mean(view)),
        labelled("speed-up", *_speedup(view)),
    ]
    below = [labelled("positions", _positions(view)), *_steps(view, width, 3 if height >= 14 else 2)]
    if height >= len(above) + len(below) + _LEAST_PLOT + 1:
        below += _domains(view)
    room = height - len(above) - len(below)
    drawn = _plot(view, width, room) if room >= _LEAST_PLOT else []
    return fitted([*above, *drawn, *below], width, height, view.ascii)


def _off(view: View) -> bool:
    """Ready, and without a draft: nothing is proposed here at all."""
    return _ready(view) and view.get("drafts", "served") is None


def _mean(view: View) -> Text:
    mean = view.get("live", "acceptance_length")
    if mean is None:
        return Text("")
    what = f"on trial: {length(mean)}" if view.get("live", "on_trial") else f"this draft: {length(mean)}"
    return Text(f"  {what}", "dim")


def _speedup(view: View) -> list[Text | tuple[str, str]]:
    speedup, plain = view.get("speedup"), view.get("plain_tok_s")
    if speedup is None:
        why = "not measured" if plain is None else "nothing of this draft yet"
        return [(DASH, "bold"), (f" × plain: {why}", "dim") if _ready(view) else ("", "")]
    style = "bold green" if speedup > 1.0 else "bold red" if speedup < 1.0 else "bold"
    slower = " × plain, SLOWER" if speedup < 1.0 else " × plain"
    baseline = f" ({rate(plain)} tok/s)" if plain is not None else ""
    return [(f"{speedup:.2f}", style), (slower, style if speedup < 1.0 else ""), (baseline, "dim")]


def _ready(view: View) -> bool:
    return view.get("state") in ("READY", "DEGRADED")


def _positions(view: View) -> str:
    rates = view.get("live", "by_position") or []
    return " ".join(length(value) for value in rates) or DASH


def _steps(view: View, width: int, most: int) -> list[Text]:
    """The number of draft steps in force, and why."""
    steps, why = view.get("live", "draft_steps"), view.get("live", "why")
    if view.get("speculation", "measuring"):
        return [labelled("steps", "measuring round times")]
    if steps is None:
        return [labelled("steps", DASH)]
    words = wrapped(
        f"{steps if steps else '0, plain decoding'}{f': {why}' if why else ''}", max(1, width - LABEL), most
    )
    return [labelled("steps" if i == 0 else "", line) for i, line in enumerate(words)]


def _domains(view: View) -> list[Text]:
    """Acceptance length of those with most requests; no line where clients name none."""
    found = view.get("live", "domains") or {}
    shown = sorted(found, key=lambda name: (-found[name]["requests"], name))[:_DOMAINS]
    words = ", ".join(f"{cleaned(name)} {length(found[name]['acceptance_length'])}" for name in shown)
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    return [labelled("domains", f"{words}{more}")] if words else []


def _plot(view: View, width: int, height: int) -> list[Text]:
    if not view.rows:  # not told, or not yet
        return []
    series = [point for point in view.series("acceptance_length") if point[0] >= view.now - SPAN]
    if not series:
        return [Text("nothing accepted in the last 15 minutes", "dim")]
    high = max(1.5, math.ceil(2 * max(value for _, value in series)) / 2)
    axes = Axes(view.now - SPAN, view.now, 1.0, high, lambda value: f"{value:.1f}", "15 min ago")
    marks = [(mark["time"], mark["text"].split()[0]) for mark in view.marks if mark["kind"] in _MARKED]
    return plot(series, axes, width, height, marks, view.ascii)
