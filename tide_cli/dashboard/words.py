"""Figures as a person reads them; what is not known is a dash."""

from __future__ import annotations

import time

from tide_cli.printable import many, size_words

DASH = "-"


def duration(seconds: float) -> str:
    """42 -> '42 s', 125 -> '2 min 05 s', 7500 -> '2 h 05 min'."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: float | None) -> str:
    """12345 -> '12,345'."""
    return DASH if number is None else f"{int(number):,}"


def counted(number: float | None, thing: str) -> str:
    """(1, 'sample') -> '1 sample', (12345, 'token') -> '12,345 tokens'."""
    return f"{DASH} {thing}s" if number is None else many(int(number), thing)


def rate(number: float | None) -> str:
    """Something a second: 12.34 -> '12.3', 1234.5 -> '1,234'."""
    return DASH if number is None else f"{number:,.1f}" if number < 1000 else f"{number:,.0f}"


def length(number: float | None) -> str:
    """An acceptance length or a speed-up: 2.306 -> '2.31'."""
    return DASH if number is None else f"{number:.2f}"


def milliseconds(number: float | None) -> str:
    """9.54 -> '9.5 ms', 210 -> '210 ms', 1240 -> '1.24 s'."""
    if number is None:
        return DASH
    if number >= 1000:
        return f"{number / 1000:.3g} s"
    return f"{number:.1f} ms" if number < 100 else f"{number:.0f} ms"


def percent(share: float | None) -> str:
    """0.43 -> '43 %'."""
    return DASH if share is None else f"{share * 100:.0f} %"


def gib(size: float | None) -> str:
    """Bytes: 1288490189 -> '1.2 GiB'."""
    return DASH if size is None else size_words(size)


def version(number: int | None) -> str:
    """7 -> 'v0007'; None -> '-'."""
    return DASH if number is None else f"v{number:04d}"


def clock(unix: float) -> str:
    """Local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(unix))
