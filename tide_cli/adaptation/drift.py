"""Whether acceptance has fallen: the traffic is no longer what the draft was trained on.

A short and a long exponential average of acceptance length, as in TIDE's Algorithm 1 (arXiv 2602.05145): it has fallen
where short < long - ε. What that algorithm also decides by it, whether samples are worth collecting, is not asked here:
all traffic is captured, since it costs hardly anything. Both averages count verify steps rather than observations, but
a long answer no more than `most_steps`: requests differ by more than their rounds do (their rate of acceptance by 0.09,
standard deviation), so what one request says does not grow with its length for ever. Counted whole, answers of 600
tokens fill the short average with two dozen requests, whose chance looks like a fall. And a fall counts only where it
is more than `sureness` standard errors of the short average, by the spread of the requests seen.

ADWIN was the alternative. Simulated requests with the spread of real ones (tests/adaptation/drift_comparison.py), a
draft adapted to code; requests until a fall is noticed (median of 40) and false alarms per 10,000 requests of steady
traffic that is mixed, in runs of 5 and in runs of 20 requests of a kind:

    fall of acceptance length     1.77 to 1.37   1.77 to 1.44   1.77 to 1.53   1.53 to 1.37   false alarms
    averages, ε = 0.10                      16             22             30             71    0, 2,  9
    the same, answers counted whole         14             20             29             58    1, 4, 11
    ADWIN, δ = 0.2, every request           39             49             72            114    0, 1,  9
    ADWIN, δ = 0.002, as published         107            139            203            363    0, 0,  2

And with answers of 110, 330 and 660 tokens, a fall from 2.4 to 2.0 and false alarms in steady traffic at 2.4:

    averages, ε = 0.10                    26, 16,  14    0,  0,  0
    the same, answers counted whole       17,  8,   4    1, 22, 84
    ADWIN, δ = 0.2, every request         45, 42,  40    0,  0,  0
    ADWIN, δ = 0.002, as published       107, 107, 107   0,  0,  0

The averages notice what matters about twice as soon. What they leave out by intention, a fall of less than ε,
ADWIN finds after some 500 requests. A library for it would weigh on the supervisor: river 0.26.1 takes 1.8 s and 102 MB
to import; frouros 0.9.0 does not go with Python 3.13 and numpy 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import exp, sqrt
from typing import Any


@dataclass(frozen=True)
class DriftRules:
    """epsilon: acceptance length that counts as fallen. short_steps, long_steps: verify steps after which an old one
    weighs 1/e in each average. most_steps: that one observation counts at most. sureness: standard errors of the short
    average that a fall must exceed. warm_up: verify steps before any decision."""

    epsilon: float = 0.10
    short_steps: float = 3_000
    long_steps: float = 30_000
    warm_up: float = 15_000
    most_steps: float = 100
    sureness: float = 3.0


@dataclass(frozen=True)
class DriftState:
    """The averages are decayed sums; seen: verify steps since they began. short_squared: of the squares of the short
    average's weights; long_squared: of the squares of acceptance lengths, weighted as the long average. Another draft
    begins with a new one: what was seen of the one before is no measure for it."""

    short_tokens: float = 0.0
    short_steps: float = 0.0
    long_tokens: float = 0.0
    long_steps: float = 0.0
    seen: float = 0.0
    short_squared: float = 0.0
    long_squared: float = 0.0

    @property
    def short(self) -> float:
        """Recent acceptance length; 0.0 before any."""
        return self.short_tokens / self.short_steps if self.short_steps else 0.0

    @property
    def long(self) -> float:
        """Acceptance length over a longer time; 0.0 before any."""
        return self.long_tokens / self.long_steps if self.long_steps else 0.0

    @property
    def error(self) -> float:
        """Standard error of `short`, by the spread of the observations in `long`; 0.0 before any."""
        if not self.short_steps:
            return 0.0
        variance = max(0.0, self.long_squared / self.long_steps - self.long**2)
        return sqrt(variance * self.short_squared) / self.short_steps

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DriftState:
        return cls(**values)


@dataclass(frozen=True)
class DriftDecision:
    """drifted: acceptance has fallen just now; reason: in words."""

    drifted: bool
    reason: str


def observe(state: DriftState, rules: DriftRules, *, tokens: float, steps: float) -> tuple[DriftState, DriftDecision]:
    """One observation: completion tokens and verify steps of a request; without a step it says nothing.

    After a fall both averages begin anew: the new level is what the next fall is measured from.
    """
    if tokens < 0 or steps < 0:
        raise ValueError(f"an observation of {tokens} tokens in {steps} steps")
    if not steps:
        return state, DriftDecision(False, "no verify step")
    counted = min(1.0, rules.most_steps / steps)
    tokens, steps = tokens * counted, steps * counted
    keep_short, keep_long = exp(-steps / rules.short_steps), exp(-steps / rules.long_steps)
    state = replace(
        state,
        short_tokens=state.short_tokens * keep_short + tokens,
        short_steps=state.short_steps * keep_short + steps,
        long_tokens=state.long_tokens * keep_long + tokens,
        long_steps=state.long_steps * keep_long + steps,
        seen=state.seen + steps,
        short_squared=state.short_squared * keep_short**2 + steps**2,
        long_squared=state.long_squared * keep_long + tokens**2 / steps,
    )
    if state.seen < rules.warm_up:
        return state, DriftDecision(False, f"{state.seen:.0f} of {rules.warm_up:.0f} verify steps seen")
    words = f"acceptance length {state.short:.3f} of late, {state.long:.3f} over a longer time"
    least = max(rules.epsilon, rules.sureness * state.error)
    if state.short < state.long - least:
        return DriftState(), DriftDecision(True, f"{words}: fallen by more than {least:.3g}")
    return state, DriftDecision(False, words)
