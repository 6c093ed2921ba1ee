"""Figures as a person reads them."""

from __future__ import annotations

import time


def duration(seconds: float) -> str:
    """42 -> '42 s', 125 -> '2 min 05 s', 7500 -> '2 h 05 min'."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: float) -> str:
    """12345 -> '12,345'."""
    return f"{int(number):,}"


def version(number: int | None) -> str:
    """7 -> 'v0007'; None -> '-'."""
    return "-" if number is None else f"v{number:04d}"


def clock(unix: float) -> str:
    """Local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(unix))
