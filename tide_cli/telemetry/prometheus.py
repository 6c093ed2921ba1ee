"""Reading a Prometheus text page: names and values, nothing more."""

from __future__ import annotations

import re

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})? +(\S+)(?: +-?\d+)?$")


def parse_page(text: str) -> dict[str, float]:
    """Metric name to value; samples of one name with different labels are added up. Unreadable lines are left out."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            try:
                values[match[1]] = values.get(match[1], 0.0) + float(match[2])
            except ValueError:
                continue
    return values
