"""Whether a candidate draft may replace the served one.

How often it and its floors err at which number of samples is counted by tests/adaptation/gate_table.py, on pairs of
known truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Protocol, TypedDict

import numpy as np

from tide_cli.adaptation.lengths import student_quantile

MINIMUM_SAMPLES = 4  # fewer say nothing about the spread between samples
RECENT_SAMPLES = 16  # looked at however old: with as many, a gain of a tenth is found five times out of six
_FLOOR_ERROR = 0.05  # how often a floor stops a draft that is no worse anywhere, all domains together
_RESAMPLES = 4000


@dataclass(frozen=True)
class Walk:
    """One held-out sample, walked with one draft: tokens produced in so many verify rounds."""

    tokens: int
    rounds: int

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.rounds < 1:
            raise ValueError(f"a walk needs at least one round and no negative tokens, not {self}")


class GateRules(TypedDict):
    """The arguments of `decide` that are the user's to set."""

    margin: float
    confidence: float
    seed: int
    floor: float
    domain_floor: float


class GateSettings(Protocol):
    """Whatever has the gate's settings: `Settings`, or what the trainer is told of them."""

    @property
    def gate_margin(self) -> float: ...
    @property
    def gate_confidence(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def gate_floor(self) -> float: ...
    @property
    def gate_domain_floor(self) -> float: ...


def gate_rules(settings: GateSettings) -> GateRules:
    """As `decide` and `choose_version` take them."""
    return GateRules(
        margin=settings.gate_margin,
        confidence=settings.gate_confidence,
        seed=settings.seed,
        floor=settings.gate_floor,
        domain_floor=settings.gate_domain_floor,
    )


@dataclass(frozen=True)
class GateDecision:
    """The gate's verdict and its figures, all in acceptance length (tokens per verify round, bonus included).

    lower_bound: one-sided lower bound of the gain; None when there are too few samples for one. domains: gain on each
    domain that there were samples enough of.
    """

    passed: bool
    candidate_al: float
    served_al: float
    gain: float
    lower_bound: float | None
    samples: int
    reason: str
    domains: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Loss:
    """Acceptance length lost on some samples, negative for a gain.

    by_chance: no more than this is measured of a draft that is no worse, but for an error of _FLOOR_ERROR.
    """

    lost: float
    by_chance: float

    def exceeds(self, allowed: float) -> tuple[bool, float]:
        """Whether it is too much, and how much it is: the worst is the maximum."""
        return self.lost > max(allowed, self.by_chance), self.lost

    def verdict(self, reason: str, where: str, allowed: float, words: str) -> tuple[bool, str]:
        """Whether a candidate that has passed so far still does, and `reason` with what is to be said of this."""
        if self.lost <= allowed:
            return True, reason
        loses = f"it loses {self.lost:.3f} on {where}"
        if self.lost > self.by_chance:
            return False, f"{reason}, but {loses}, more than {words}"
        return True, f"{reason}; {loses}, which may be chance"


def acceptance_length(walks: Sequence[Walk]) -> float:
    """Tokens over rounds, both summed over the samples; 0.0 without samples."""
    rounds = sum(walk.rounds for walk in walks)
    return sum(walk.tokens for walk in walks) / rounds if rounds else 0.0


def decide(
    candidate: Sequence[Walk],
    served: Sequence[Walk],
    *,
    margin: float,
    confidence: float,
    seed: int,
    floor: float,
    old_candidate: Sequence[Walk] = (),
    old_served: Sequence[Walk] = (),
    domains: Sequence[str | None] = (),
    domain_floor: float = 0.10,
) -> GateDecision:
    """Passes a candidate that gains more than `margin`, which is no chance, and which loses too much nowhere.

    No chance: the lower bound of the gain is above zero. The margin is not asked of the bound: with the few samples
    that a shift of the traffic leaves, that would refuse most of what is well worth a swap.

    candidate[i] and served[i] are walks of the same recent sample, old_candidate[i] and old_served[i] of the same old
    one. The lower bound is that of a paired bootstrap over samples of the difference of the two ratios, at one-sided
    `confidence`. floor: acceptance length the candidate may lose on old samples; with too few of them it is not asked.
    domains: the recent samples' labels, None where unknown; () where none is known. domain_floor: acceptance length
    the candidate may lose on any one domain, whatever it gains on the others. Either stops a candidate whose loss, as
    measured, is above it and more than chance explains: a bound like the gain's would let half of the drafts pass that
    lose twice as much on eight samples, the measured loss alone would stop good ones by the number of domains.
    Pure: the same arguments give the same decision. ValueError when the walks are not paired.
    """
    if len(candidate) != len(served) or len(old_candidate) != len(old_served):
        raise ValueError("both drafts must have walked the same samples")
    if domains and len(domains) != len(candidate):
        raise ValueError("there must be a label for each recent sample")
    candidate_al, served_al = acceptance_length(candidate), acceptance_length(served)
    gain, count = candidate_al - served_al, len(candidate)
    lower = None
    if count < MINIMUM_SAMPLES:
        passed = False
        reason = f"{count} held-out sample{'' if count == 1 else 's'}, at least {MINIMUM_SAMPLES} are needed"
    else:
        lower = gain_lower_bound(candidate, served, confidence=confidence, seed=seed)
        passed = gain > margin and lower > min(0.0, margin)
        bound = f"gain {gain:+.3f}, at least {lower:+.3f} with confidence {confidence:g} on {count} samples"
        verdict = f"{'above' if gain > margin else 'not above'} the margin {margin:g}"
        reason = f"{bound}: {verdict}" + (", but it may be chance" if gain > margin and not passed else "")
    if passed and 0 < len(old_served) < MINIMUM_SAMPLES:
        reason = f"{reason}; the floor is not asked, with {len(old_served)} of {MINIMUM_SAMPLES} old samples"
    elif passed and old_served:
        (loss,) = _losses({"old": (old_candidate, old_served)}).values()
        passed, reason = loss.verdict(reason, f"{len(old_served)} old samples", floor, f"the floor {floor:g}")
    by_domain = domain_losses(candidate, served, domains)
    if passed and by_domain:
        worst, loss = max(by_domain.items(), key=lambda item: item[1].exceeds(domain_floor))
        passed, reason = loss.verdict(reason, worst, domain_floor, f"the {domain_floor:g} allowed")
    gains = {name: -loss.lost for name, loss in by_domain.items()}
    return GateDecision(passed, candidate_al, served_al, gain, lower, count, reason, gains)


def domain_losses(candidate: Sequence[Walk], served: Sequence[Walk], domains: Sequence[str | None]) -> dict[str, Loss]:
    """What is lost on each domain; unlabelled samples belong to none.

    Domains with too few samples to judge by are judged together, and left out if they are too few even so.
    """
    labelled = [name for name in domains if name is not None]
    few = {name for name in labelled if labelled.count(name) < MINIMUM_SAMPLES}
    together = ", ".join(sorted(few))
    groups: dict[str, tuple[list[Walk], list[Walk]]] = {}
    for name, one, other in zip(domains, candidate, served, strict=bool(domains)):
        if name is not None:
            walks = groups.setdefault(together if name in few else name, ([], []))
            walks[0].append(one)
            walks[1].append(other)
    return _losses({name: walks for name, walks in groups.items() if len(walks[0]) >= MINIMUM_SAMPLES})


def _losses(groups: Mapping[str, tuple[Sequence[Walk], Sequence[Walk]]]) -> dict[str, Loss]:
    """Of each group of samples, its walks with the candidate and with the served draft; each of two or more.

    The error is shared among the groups. How far samples of a group scatter is taken from all groups, relative to the
    acceptance length, to which it is about proportional: a few samples alone do not tell.
    """
    scale = {name: max(map(acceptance_length, walks)) or 1.0 for name, walks in groups.items()}
    squares, freedom = 0.0, 0
    for name, (candidate, served) in groups.items():
        squares += float(((_residuals(candidate) - _residuals(served)) ** 2).sum()) / scale[name] ** 2
        freedom += len(served) - 1
    return {
        name: Loss(
            acceptance_length(served) - acceptance_length(candidate),
            student_quantile(1 - _FLOOR_ERROR / len(groups), freedom)
            * (squares / freedom / len(served)) ** 0.5
            * scale[name],
        )
        for name, (candidate, served) in groups.items()
    }


def _residuals(walks: Sequence[Walk]) -> np.ndarray:
    """How far each sample's length is from that of all, weighted by its rounds: what a ratio's variance is made of."""
    tokens, rounds = np.array([(walk.tokens, walk.rounds) for walk in walks], float).T
    return (tokens - acceptance_length(walks) * rounds) / rounds.mean()


def recent_count(created: Sequence[float], since: float) -> int:
    """How many of the held-out samples, newest first, a candidate is to be judged on.

    created: unix seconds of each. since: when the served draft was made. What came before has made it what it is, and
    after a shift of the traffic would hide what the candidate has learned of the new one. At least RECENT_SAMPLES, as
    far as there are any.
    """
    return max(sum(one >= since for one in created), min(RECENT_SAMPLES, len(created)))


def gain_lower_bound(candidate: Sequence[Walk], served: Sequence[Walk], *, confidence: float, seed: int) -> float:
    """Lower end of the paired bootstrap's one-sided interval for AL(candidate) - AL(served), at least two samples.

    Samples are drawn with replacement, each with both its walks, and each draw's ratios are those of the sums.
    """
    count = len(candidate)
    figures = np.array([(c.tokens, c.rounds, s.tokens, s.rounds) for c, s in zip(candidate, served, strict=True)])
    # how often each sample is drawn is all a resample's sums depend on
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    tokens, rounds, served_tokens, served_rounds = (draws @ figures).T
    gains = tokens / rounds - served_tokens / served_rounds
    return float(np.quantile(gains, _percentile(1 - confidence, count)))


def _percentile(alpha: float, count: int) -> float:
    """The bootstrap percentile whose one-sided error is alpha with few samples.

    Plain percentile intervals are too narrow by about sqrt((n-1)/n) and ignore Student's t; asking for a percentile
    further out mends both (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", expanded percentile).
    """
    t = student_quantile(alpha, count - 1)
    return NormalDist().cdf(t * (count / (count - 1)) ** 0.5)
