"""Reading a Prometheus text page: names, labels and values, nothing more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? +(\S+)(?: +-?\d+)?$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line. labels: as they stand between the brackets, empty where there are none."""

    name: str
    labels: str
    value: float

    def label(self, name: str) -> str | None:
        """The value of one label; escapes stay."""
        return next((value for found, value in _LABEL.findall(self.labels) if found == name), None)


def read_samples(text: str, names: Collection[str] | None = None) -> Iterator[Sample]:
    """The samples of a page in order, of these names or all. Unreadable lines are left out."""
    prefixes = None if names is None else tuple(names)
    for line in text.splitlines():
        if prefixes is not None and not line.startswith(prefixes):
            continue  # a page has many hundred lines, few of which anybody asks for
        match = _LINE.match(line)
        if match and (names is None or match[1] in names):
            try:
                yield Sample(match[1], match[2] or "", float(match[3]))
            except ValueError:
                continue


def parse_page(text: str) -> dict[str, float]:
    """Metric name to value; samples of one name with different labels are added up. Unreadable lines are left out."""
    values: dict[str, float] = {}
    for sample in read_samples(text):
        values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values
