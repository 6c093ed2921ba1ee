"""Whether acceptance has fallen: the traffic is no longer what the draft was trained on.

A short and a long exponential average of acceptance length, as in TIDE's Algorithm 1 (arXiv 2602.05145): samples are
worth collecting at the start, and again whenever short < long - ε. Both averages count verify steps rather than
observations, so that it does not matter how the traffic is cut into observations.

ADWIN was the alternative. Simulated requests with the spread of real ones (tests/adaptation/drift_comparison.py), a
draft adapted to code; requests until a fall is noticed (median of 40) and false alarms per 10,000 requests of steady
traffic that is mixed, in runs of 5 and in runs of 20 requests of a kind:

    fall of acceptance length     1.77 to 1.37   1.77 to 1.44   1.77 to 1.53   1.53 to 1.37   false alarms
    averages, ε = 0.10                      13             18             32             52    1,  4, 11
    ADWIN, δ = 0.2, every request           38             48             72            114    0,  1,  9
    ADWIN, δ = 0.002, as published         107            139            203            363    0,  0,  2

The averages notice what matters two to three times sooner. What they leave out by intention, a fall of less than ε,
ADWIN finds after some 500 requests. A library for it would weigh on the supervisor: river 0.26.1 takes 1.8 s and 102 MB
to import; frouros 0.9.0 does not go with Python 3.13 and numpy 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import exp
from typing import Any


@dataclass(frozen=True)
class DriftRules:
    """epsilon: acceptance length that counts as fallen. short_steps, long_steps: verify steps after which an old one
    weighs 1/e in each average. warm_up: verify steps before any decision."""

    epsilon: float = 0.10
    short_steps: float = 3_000
    long_steps: float = 30_000
    warm_up: float = 15_000


@dataclass(frozen=True)
class DriftState:
    """collecting: whether new samples are worth training on. The averages are decayed sums; seen: verify steps since
    they began."""

    collecting: bool = True
    short_tokens: float = 0.0
    short_steps: float = 0.0
    long_tokens: float = 0.0
    long_steps: float = 0.0
    seen: float = 0.0

    @property
    def short(self) -> float:
        """Recent acceptance length; 0.0 before any."""
        return self.short_tokens / self.short_steps if self.short_steps else 0.0

    @property
    def long(self) -> float:
        """Acceptance length over a longer time; 0.0 before any."""
        return self.long_tokens / self.long_steps if self.long_steps else 0.0

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
    """One observation: completion tokens and verify steps of requests served with the same draft.

    After a fall both averages begin anew: the new level is what the next fall is measured from.
    """
    if tokens < 0 or steps < 0:
        raise ValueError(f"an observation of {tokens} tokens in {steps} steps")
    keep_short, keep_long = exp(-steps / rules.short_steps), exp(-steps / rules.long_steps)
    state = replace(
        state,
        short_tokens=state.short_tokens * keep_short + tokens,
        short_steps=state.short_steps * keep_short + steps,
        long_tokens=state.long_tokens * keep_long + tokens,
        long_steps=state.long_steps * keep_long + steps,
        seen=state.seen + steps,
    )
    if state.seen < rules.warm_up:
        return state, DriftDecision(False, f"{state.seen:.0f} of {rules.warm_up:.0f} verify steps seen")
    words = f"acceptance length {state.short:.3f} of late, {state.long:.3f} over a longer time"
    if state.short < state.long - rules.epsilon:
        return DriftState(collecting=True), DriftDecision(True, f"{words}: fallen by more than {rules.epsilon:g}")
    return state, DriftDecision(False, words)


def draft_changed(state: DriftState) -> DriftState:
    """Another draft is served: what was seen of the one before is no measure for it."""
    return DriftState(collecting=state.collecting)


def settled(state: DriftState) -> DriftState:
    """Training on the present traffic brings nothing more: nothing need be collected until acceptance falls."""
    return replace(state, collecting=False)
