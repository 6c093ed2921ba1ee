"""Whether a draft that was put into service keeps its promise, or the version before it comes back.

Watched is live acceptance length on requests that came in since the swap. A version is taken back when its length lies
more than the margin below both the version before it and the gate's forecast, each at the upper end of a one-sided
confidence interval. Both, because either alone misleads: below the forecast and above the old draft is still a gain,
and below the old draft as forecast means that the traffic has become harder to draft. It is looked at whenever the
tokens watched have doubled, and the error that the confidence allows is shared among these looks, so that looking often
does not make a false alarm likelier. Once enough has been seen the version is trusted, and later losses are the drift
policy's business.

What these figures cannot tell is a worse draft from harder traffic that has come with the swap: both references are of
the traffic before. Unless hardly anything is left of what a draft is for, both versions should therefore be walked over
the newest samples first (`is_hopeless`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import floor, isfinite, log2, sqrt
from typing import Any

from tide_cli.adaptation.lengths import Lengths, student_quantile


@dataclass(frozen=True)
class RollbackRules:
    """margin: acceptance length a version may lack; confidence: one-sided, over the whole watch; first_tokens,
    last_tokens: completion tokens before the first look and until a version is trusted; observations: at least so many
    before any look."""

    margin: float = 0.05
    confidence: float = 0.95
    first_tokens: int = 500
    last_tokens: int = 64_000
    observations: int = 8

    @property
    def looks(self) -> int:
        """How many times the tokens can have doubled, the first and the last look included."""
        return 1 + max(0, floor(log2(self.last_tokens / self.first_tokens)))


@dataclass(frozen=True)
class Watch:
    """State of a watch. forecast: the gate's acceptance length of the new version, None where no gate judged it.

    before: what was seen live of the version before; expected_before: the gate's figure for it, used while too little
    was seen live. looked_at: tokens at the last look.
    """

    version: int
    previous: int
    forecast: float | None
    expected_before: float | None
    before: Lengths = field(default_factory=Lengths)
    live: Lengths = field(default_factory=Lengths)
    looked_at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Watch:
        lengths = {name: Lengths(**values[name]) for name in ("before", "live")}
        return cls(**{**values, **lengths})


@dataclass(frozen=True)
class RollbackDecision:
    """verdict: 'watching', 'trusted' or 'rolled_back' (the version is bad and the one before it comes back)."""

    verdict: str
    reason: str


def observe(watch: Watch, rules: RollbackRules, *, tokens: float, steps: float) -> tuple[Watch, RollbackDecision]:
    """One more observation of the watched version: completion tokens and verify steps."""
    watch = replace(watch, live=watch.live.add(tokens, steps))
    live = watch.live
    due = live.tokens >= max(rules.first_tokens, 2 * watch.looked_at) or live.tokens >= rules.last_tokens
    if live.count < rules.observations or not due:
        return watch, RollbackDecision("watching", f"{live.tokens:.0f} tokens of v{watch.version:04d} seen")
    watch = replace(watch, looked_at=live.tokens)
    if bounds := _bounds(watch, rules):
        lacking = "; ".join(f"at least {-bound:.3f} below {name}" for name, bound in bounds.items())
        if all(bound < -rules.margin for bound in bounds.values()):
            words = f"acceptance length {live.length:.3f} on {live.tokens:.0f} tokens: {lacking}"
            return watch, RollbackDecision("rolled_back", f"{words}, and the margin is {rules.margin:g}")
    if live.tokens >= rules.last_tokens or not bounds:
        against = "" if bounds else "; there is nothing to compare it with"
        return watch, RollbackDecision("trusted", f"acceptance length {live.length:.3f}{against}")
    return watch, RollbackDecision(
        "watching", f"acceptance length {live.length:.3f} on {live.tokens:.0f} tokens so far"
    )


def anew(watch: Watch) -> Watch:
    """The same watch at its beginning: nothing has been seen of the new version."""
    return replace(watch, live=Lengths(), looked_at=0.0)


def is_hopeless(watch: Watch, rules: RollbackRules) -> bool:
    """Whether the version gains less than a third of what the one before did: no shift of traffic looks like that.

    What was seen live of the one before counts where it would count for `observe`, else the gate's figures stand in.
    """
    seen = watch.before.count >= rules.observations
    reference = watch.before.length if seen else watch.expected_before or watch.forecast or 1.0
    return watch.live.length - 1 < (reference - 1) / 3


def _bounds(watch: Watch, rules: RollbackRules) -> dict[str, float]:
    """Upper end of (live - reference) for each reference there is, in acceptance length."""
    probability = 1 - (1 - rules.confidence) / rules.looks
    live, before = watch.live, watch.before
    bounds = {}
    if before.count >= rules.observations:
        spread = sqrt(live.variance + before.variance)
        freedom = min(live.count, before.count) - 1
        name = f"v{watch.previous:04d}'s {before.length:.3f}"
        bounds[name] = live.length - before.length + student_quantile(probability, freedom) * spread
    references = {"the gate's forecast": watch.forecast}
    if not bounds:
        references[f"the gate's figure for v{watch.previous:04d},"] = watch.expected_before
    for name, figure in references.items():
        if figure is not None and isfinite(figure):
            spread = student_quantile(probability, live.count - 1) * sqrt(live.variance)
            bounds[f"{name} {figure:.3f}"] = live.length - figure + spread
    return bounds
