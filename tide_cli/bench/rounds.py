"""Contestants that take turns, and what their rounds say together. Pure: the clock is an argument."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """The median of some values and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """ValueError without values."""
        if not values:
            raise ValueError("no values")
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


def ratios(values: Sequence[float], others: Sequence[float]) -> Spread:
    """Of value i to other i: each pair was measured next to each other, so that a slow moment slows both."""
    return Spread.of([value / other for value, other in zip(values, others, strict=True)])


def in_turns(
    contestants: Mapping[str, Callable[[], T]], *, seconds: float, least: int, clock: Callable[[], float]
) -> Iterator[dict[str, T]]:
    """Rounds until `seconds` are over by the clock, at least `least`; yields each round's results.

    Every contestant runs once a round; each round begins with another one, so that no place in the order is anybody's.
    """
    begun, names, number = clock(), list(contestants), 0
    while number < least or clock() - begun < seconds:
        order = names[number % len(names) :] + names[: number % len(names)]
        results = {name: contestants[name]() for name in order}
        yield {name: results[name] for name in names}
        number += 1
