"""What runs where, and how busy it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from tide_cli.dashboard.view import View, bar, cleaned, fitted
from tide_cli.dashboard.words import DASH, gib, percent

_BAR = 8
_WIDE = 70  # columns from which the device's name is shown


def lines(view: View, width: int, height: int) -> list[Text]:
    rows = view.get("devices") or []
    if not rows:
        return fitted([Text(DASH)], width, height, view.ascii)
    found = (
        [line for row in rows for line in _two_lines(row)]
        if width < _WIDE and 2 * len(rows) <= height
        else [_line(row, width) for row in rows]
    )
    if len(found) > height > 1:
        found = [*found[: height - 1], Text(f"and {len(rows) - height + 1} more", "dim")]
    return fitted(found, width, height, view.ascii)


def _two_lines(row: Mapping[str, Any]) -> list[Text]:
    name = f"  {cleaned(row['name'])}" if row.get("name") else ""
    return [
        Text.assemble((f"{row['role']} ", "bold"), _place(row), (name, "dim")),
        Text.assemble("  ", bar(row.get("use"), _BAR), f" {percent(row.get('use'))}  {_memory(row)}{_power(row)}"),
    ]


def _line(row: Mapping[str, Any], width: int) -> Text:
    text = Text.assemble((f"{row['role']} ", "bold"), f"{_place(row)} ")
    if width >= _WIDE:
        text.append_text(bar(row.get("use"), _BAR)).append(" ")
    text.append(f"{percent(row.get('use'))}  {_memory(row)}{_power(row)}")
    if width >= _WIDE and row.get("name"):
        text.append(f"  {cleaned(row['name'])}", "dim")
    return text


def _place(row: Mapping[str, Any]) -> str:
    if row.get("gpu") is not None:
        return f"GPU {row['gpu']}"
    cores = str(row.get("cores") or DASH)
    return f"{'core' if cores.isdecimal() else 'cores'} {cores}"


def _memory(row: Mapping[str, Any]) -> str:
    """Of the whole device, whoever takes it: for cores that is the machine's main memory."""
    used = row.get("memory_used")
    whose = "main memory " if row.get("gpu") is None else ""
    return DASH if used is None else f"{whose}{used / 2**30:.1f} of {gib(row.get('memory_total'))}"


def _power(row: Mapping[str, Any]) -> str:
    return "" if row.get("power") is None else f"  {row['power']:.0f} W"
