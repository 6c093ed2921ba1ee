"""Moments of a recorded appliance, as the dashboard would have seen them then.

recorded.json holds some minutes of the real one on two CPU cores: day 0 with the first traffic, the seconds between a
draft's publication and its swap, the traffic after it, and an engine that was stopped by a signal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tide_cli.dashboard.feed import Snapshot
from tide_cli.dashboard.view import View

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text())
MOMENTS = ("healthy", "degraded", "day_0", "swap")
_SPAN = 900.0  # seconds


def now(moment: str) -> float:
    """Unix seconds of a moment."""
    return float(RECORDED["moments"][moment]["now"])


def snapshot(moment: str, **status: Any) -> Snapshot:
    """With some fields of the status replaced; answered long ago, but for `view`, which sets that right."""
    until = now(moment)
    table = RECORDED["rows"]
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return Snapshot(
        RECORDED["moments"][moment]["status"] | status,
        answered=0.0,
        rows=[row for row in rows if until - _SPAN <= row["time"] <= until],
        marks=[mark for mark in RECORDED["marks"] if mark["time"] <= until],
        events=[event for event in RECORDED["events"] if event["time"] <= until],
    )


def view(moment: str = "healthy", silence: float = 0.0, ascii: bool = False, **status: Any) -> View:
    """At the second of the recording."""
    return snapshot(moment, **status).view(now(moment), silence, ascii)
