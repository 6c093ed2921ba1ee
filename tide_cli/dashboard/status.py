"""The panels one below the other, in one frame: `tide status`, and the lower part of `tide demo`'s picture."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel as Frame
from rich.text import Text

from tide_cli.dashboard.edges import alarms
from tide_cli.dashboard.panels import NAMES, PANELS
from tide_cli.dashboard.panels.adaptation import coverage, cycle, gate, learning
from tide_cli.dashboard.view import STATE_STYLES, View, cleaned, fitted, labelled, wrapped
from tide_cli.dashboard.words import clock, duration

_QUIET = {"started", "exited"}  # events whose news the states show too
_HEIGHTS = {"engine": 6, "adaptation": 16, "devices": 16}  # lines at most
_WITH_PLOT, _WITHOUT_PLOT = 15, 9  # of the speculation panel
_GATE_LINES = 8  # over which a verdict may run where there is room
_EVENT_LINES = 3  # over which the text of one event may run


def render_status(
    status: Mapping[str, Any],
    now: float,
    history: Mapping[str, Any] | None = None,
    names: Collection[str] = NAMES,
) -> RenderableType:
    """status: as `GET /v1/status` answers; history: as `GET /v1/history`; now: unix seconds; names: of the panels."""
    told = history or {"rows": [], "marks": []}
    news = [event for event in status["events"] if event["time"] >= status["started"] and event["kind"] not in _QUIET]
    return _Board(View(status, now, told["rows"], told["marks"], news), names)


def render_training(status: Mapping[str, Any], now: float, width: int) -> RenderableType:
    """What `tide train status` shows, on so many columns."""
    view = View(status, now)
    shown = [labelled("learning", learning(view)), labelled("cycle", *cycle(view, width))]
    return Group(*shown, *gate(view, width, _GATE_LINES), *coverage(view))


class _Board:
    def __init__(self, view: View, names: Collection[str]) -> None:
        self._view, self._names = view, names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view = replace(self._view, ascii=options.ascii_only)
        state, width = view.status["state"], max(1, options.max_width - 4)
        title = Text.assemble("TIDE  ", (state, STATE_STYLES.get(state, "bold cyan")))
        lines = [*_general(view, width), *alarms(view, width, 12)]
        for panel in PANELS:
            if panel.name not in self._names:
                continue
            height = _HEIGHTS.get(panel.name, _WITH_PLOT if view.rows else _WITHOUT_PLOT)
            found = _events(view, width) if panel.name == "events" else panel.lines(view, width, height)
            if found:
                lines += [Text(), Text(panel.title, "bold"), *found]
        yield Frame(Group(*lines), title=title, title_align="left")


def _general(view: View, width: int) -> list[Text]:
    status = view.status
    known = status["state"] == "READY"
    address = Text(status["address"], "bold") if known else Text(f"{status['address']}  not answering", "dim")
    lines = [
        labelled("target", cleaned(status["target"])),
        labelled("address", address),
        labelled("up for", duration(max(0.0, view.now - status["started"]))),
    ]
    return fitted(lines, width, len(lines), view.ascii)


def _events(view: View, width: int) -> list[Text]:
    lines = []
    for event in view.events:
        words = wrapped(event["text"], max(1, width - 10), _EVENT_LINES)
        lines += [
            Text.assemble((clock(event["time"]) if i == 0 else " " * 8, "dim"), "  ", t) for i, t in enumerate(words)
        ]
    return fitted(lines, width, len(lines), view.ascii)
