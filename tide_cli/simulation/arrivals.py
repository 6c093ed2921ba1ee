"""The load: requests of a trace, of a rate, or so many at a time, and what each of them asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from tide_cli.bench.replay import Arrival
from tide_cli.simulation.acceptance import BETWEEN_REQUESTS

_SPREAD = 0.5  # of the logarithm of lengths, as measured on answers of the embedded target


@dataclass(frozen=True)
class Ask:
    """One request. at: seconds, None where it comes as soon as another one has ended; ease: by which its rate of
    acceptance differs from its domain's."""

    number: int
    at: float | None
    input_tokens: int
    output_tokens: int
    ease: float


@dataclass(frozen=True)
class Load:
    """Exactly one of trace, rate (requests/s) and concurrency. speed: of a trace. input_tokens, output_tokens: mean
    lengths; a trace has its own. even: every request has the mean lengths and no ease. requests: at most so many."""

    trace: Sequence[Arrival] | None = None
    rate: float | None = None
    concurrency: int | None = None
    speed: float = 1.0
    input_tokens: int = 1000
    output_tokens: int = 300
    even: bool = False
    requests: int | None = None

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Tokens of a prompt and of an answer."""
        if self.trace is None:
            return float(self.input_tokens), float(self.output_tokens)
        count = len(self.trace)
        asked = sum(self.input_tokens if row.input_tokens is None else row.input_tokens for row in self.trace)
        return asked / count, sum(row.output_tokens for row in self.trace) / count

    def asks(self, seed: int) -> Iterator[Ask]:
        """In order of time; endless unless `requests` or the trace bounds it. The same seed gives the same ones."""
        chance = np.random.default_rng(seed)
        now = 0.0
        for number in count():
            if self.requests is not None and number >= self.requests:
                return
            ease = 0.0 if self.even else float(chance.normal(0, BETWEEN_REQUESTS))
            if self.trace is not None:
                if number >= len(self.trace):
                    return
                row = self.trace[number]
                asked = self.input_tokens if row.input_tokens is None else row.input_tokens
                yield Ask(number, row.at / self.speed, max(1, asked), max(1, row.output_tokens), ease)
                continue
            lengths = self._length(chance, self.input_tokens), self._length(chance, self.output_tokens)
            yield Ask(number, None if self.rate is None else now, *lengths, ease)
            if self.rate is not None:
                now += float(chance.exponential(1 / self.rate))

    def _length(self, chance: np.random.Generator, mean: int) -> int:
        if self.even:
            return mean
        return max(1, round(mean * float(chance.lognormal(-(_SPREAD**2) / 2, _SPREAD))))
