"""The panels: each a pure function of (view, width, height) to at most `height` lines of at most `width` columns.

The lines that matter most come first, for a small terminal shows no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.text import Text

from tide_cli.dashboard.panels import adaptation, devices, engine, events, speculation
from tide_cli.dashboard.view import View


@dataclass(frozen=True)
class Panel:
    """key: that shows it alone; lines: what it holds."""

    key: str
    name: str
    title: str
    lines: Callable[[View, int, int], list[Text]]


PANELS = (
    Panel("1", "engine", "Engine", engine.lines),
    Panel("2", "speculation", "Speculation", speculation.lines),
    Panel("3", "adaptation", "Adaptation", adaptation.lines),
    Panel("4", "devices", "Devices", devices.lines),
    Panel("5", "events", "Events", events.lines),
)
NAMES = tuple(panel.name for panel in PANELS)
