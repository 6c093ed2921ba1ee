"""How many tokens the draft proposes in a round, 0 being plain decoding, so that speculation never costs.

A round of γ steps at batch size b costs γ·D(b) + T(b(γ+1)) + X(b): γ draft steps, the target's verification of γ+1
tokens a request, and what is spent whatever γ (SGLang extends the draft's cache after plain rounds too). It yields
E[ℓ] tokens a request. Against plain rounds of the same engine the expected speed-up is

    E[ℓ] · (T(b) + X(b)) / (γ·D(b) + T(b(γ+1)) + X(b))

which without X is E[ℓ] / (γ·D/T(b) + T(b(γ+1))/T(b)). If each proposal is accepted with probability α where all before
it were, E[ℓ] = (1 - α^(γ+1)) / (1 - α); with a rate α_i for each position it is 1 + Σ_i α_1·…·α_i.

The state is a value: a decision can be made again from the state before it. Called in every round: no numpy, no I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from tide_cli.printable import many

_PRIOR_ROUNDS = 8.0  # weight, in judged proposals, of what is believed before any was seen


class RoundCosts(Protocol):
    """What rounds cost: modelled from their parts (`Profile`), or measured as a whole."""

    def round_seconds(self, batch: int, steps: int) -> float: ...


@dataclass(frozen=True)
class RoundSeconds:
    """What rounds cost at one batch size, of 0, 1, … draft steps: all that one decision looks at."""

    seconds: tuple[float, ...]

    def round_seconds(self, batch: int, steps: int) -> float:
        """Cost of one round of `steps` draft steps, whatever `batch`."""
        return self.seconds[steps]


@dataclass(frozen=True)
class Profile:
    """What was measured at the start, in seconds.

    verify: (tokens in a pass, T) of the target; draft: (batch size, D) of one draft step; extra: (batch size, X).
    Each ascending in its first, the first two not empty. ValueError else, or for times that are not positive.
    """

    verify: tuple[tuple[int, float], ...]
    draft: tuple[tuple[int, float], ...]
    extra: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name, points in (("verify", self.verify), ("draft", self.draft), ("extra", self.extra)):
            sizes = [size for size, _ in points]
            if sizes != sorted(set(sizes)) or (not points and name != "extra"):
                raise ValueError(f"the profile's {name} sizes must ascend and there must be one")
            if any(not 0 <= seconds < float("inf") or (name == "verify" and seconds == 0) for _, seconds in points):
                raise ValueError(f"the profile's {name} times must be positive")

    def round_seconds(self, batch: int, steps: int) -> float:
        """Cost of one round of `steps` draft steps for `batch` requests."""
        extra = interpolate(self.extra, batch) if self.extra else 0.0
        draft = steps * interpolate(self.draft, batch) if steps else 0.0
        return draft + interpolate(self.verify, batch * (steps + 1)) + extra


def interpolate(points: Sequence[tuple[int, float]], size: int) -> float:
    """Straight between measured sizes, constant below the first, and beyond the last in proportion to size.

    In proportion is the cautious guess: a pass that is bound by arithmetic grows so, one that is not grows less.
    """
    place = bisect_right(points, size, key=lambda point: point[0])
    if place == 0:
        return points[0][1]
    left, left_seconds = points[place - 1]
    if place == len(points):
        return left_seconds * size / left if left else left_seconds
    right, right_seconds = points[place]
    return left_seconds + (right_seconds - left_seconds) * (size - left) / (right - left)


@dataclass(frozen=True)
class Acceptance:
    """Proposals judged and accepted at each position of the chain, position 0 first, older rounds weighing less.

    A round at γ steps in which k were accepted judges positions 0…k, or all γ where k = γ: what comes after a miss is
    never judged. Its likelihood under one rate α is α^k·(1-α) for k < γ and α^γ for k = γ, a geometric distribution
    censored at γ, so the most likely α over many rounds is Σk / (Σk + rounds with a miss) = Σaccepted / Σjudged,
    whatever γ each round had. The same holds for each position by itself.
    """

    judged: tuple[float, ...]
    accepted: tuple[float, ...]

    @classmethod
    def none_yet(cls, most_steps: int) -> Acceptance:
        return cls((0.0,) * most_steps, (0.0,) * most_steps)

    def observe(self, accepted: Sequence[int], steps: int, memory: float) -> Acceptance:
        """After a round of `steps` in which request i had accepted[i] proposals accepted.

        memory: proposals of the first position after which an old one weighs 1/e.
        """
        if not steps or not accepted:
            return self
        keep = max(0.0, 1 - len(accepted) / memory)
        judged, hits = [old * keep for old in self.judged], [old * keep for old in self.accepted]
        for count in accepted:
            for position in range(min(count + 1, steps)):
                judged[position] += 1
            for position in range(min(count, steps)):
                hits[position] += 1
        return Acceptance(tuple(judged), tuple(hits))

    @property
    def known(self) -> bool:
        """Whether what was seen outweighs what is believed before."""
        return sum(self.judged) >= _PRIOR_ROUNDS

    def rates(self, prior: float) -> list[float]:
        """Probability of acceptance at each position where all before it were accepted, all below 1.

        A position leans on the rate of all together, and that on `prior`, as long as little of it was judged: at a
        small γ the later positions are never seen.
        """
        together = _lean(sum(self.accepted), sum(self.judged), prior)
        return [_lean(hit, seen, together) for hit, seen in zip(self.accepted, self.judged, strict=True)]


def _lean(accepted: float, judged: float, on: float) -> float:
    return (accepted + _PRIOR_ROUNDS * on) / (judged + _PRIOR_ROUNDS)


def rate_from_totals(accepted: float, rounds: float, steps: int) -> float:
    """The α at which rounds of `steps` accept accepted/rounds proposals on average: for sums without their parts.

    The mean of the censored geometric distribution, α + α² + … + α^steps, is solved for α. ValueError for impossible
    totals.
    """
    if steps < 1 or rounds <= 0 or not 0 <= accepted <= rounds * steps:
        raise ValueError(f"{accepted} of {steps} proposals in {rounds} rounds")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if expected_length([middle] * steps) - 1 < accepted / rounds:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def expected_length(rates: Sequence[float]) -> float:
    """E[ℓ]: tokens a request gains in a round, the target's own included; rates: one a step, as of `Acceptance`."""
    length = reached = 1.0
    for rate in rates:
        reached *= rate
        length += reached
    return length


def expected_rest(rates: Sequence[float], steps: int) -> float:
    """Proposals that would have been accepted beyond the first `steps`, all of them accepted, at the largest γ.

    What a round with fewer steps leaves out of the acceptance length, so that rounds of any γ >= 1 can be compared.
    """
    return expected_length(rates[steps:]) - 1


def expected_speedup(profile: RoundCosts, rates: Sequence[float], batch: int, steps: int) -> float:
    """Of rounds of `steps` over plain rounds at this batch size, in tokens a second."""
    plain = profile.round_seconds(batch, 0)
    return expected_length(rates[:steps]) * plain / profile.round_seconds(batch, steps)


def in_words(profile: RoundCosts, rates: Sequence[float], batch: int, steps: int, margin: float) -> str:
    """What so many steps promise; where it is none, what the best other number would. rates: one for each step."""

    def promised(steps: int) -> float:
        return expected_speedup(profile, rates, batch, steps)

    shown = steps or max(range(1, len(rates) + 1), key=promised)
    words = (
        f"{many(shown, 'draft step')} promise{'s' if shown == 1 else ''} {promised(shown):.2f} times the speed of plain"
        f" decoding at batch size {batch}, with {100 * rates[0]:.0f} % of first proposals accepted"
    )
    if steps or promised(shown) <= 1:
        return words
    if promised(shown) > 1 + margin:  # since the last decision, or within the dwell of one
        return f"{words}; it is taken if the next rounds bear that out"
    return f"{words}; a change must bring {100 * margin:g} %"


@dataclass(frozen=True)
class SpeculationRules:
    """most_steps: γ is one of 0…most_steps. margin: part by which another γ must be better to be taken. dwell: rounds
    that a choice stays at least, unless it costs more than the margin. probe_share: part of the rounds that take
    another γ at most, so that acceptance and round times stay known. probe_loss: part of the time that they may cost a
    plain engine: a γ that is far from paying is tried less often. memory: see Acceptance.observe. prior: rate believed
    before any was seen. trial: proposals of a new draft after which it is known well enough to be kept or taken back;
    until then a plain engine's probes take trial_share of the rounds whatever they cost, since they would else leave a
    bad draft in service for hours, idle."""

    most_steps: int
    margin: float = 0.05
    dwell: int = 16
    probe_share: float = 1 / 64
    probe_loss: float = 1 / 400
    memory: float = 256.0
    prior: float = 0.5
    trial: int = 1000
    trial_share: float = 1 / 8


@dataclass(frozen=True)
class SpeculationState:
    """steps: γ in force; rounds: since it was taken; steady: since the last probe; probes: so far; trial: proposals
    still to be seen of a new draft."""

    steps: int
    acceptance: Acceptance
    rounds: int = 0
    steady: int = 0
    probes: int = 0
    trial: int = 0

    @classmethod
    def initial(cls, rules: SpeculationRules, steps: int) -> SpeculationState:
        return cls(steps, Acceptance.none_yet(rules.most_steps))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SpeculationState:
        rates = values["acceptance"]
        return cls(**{**values, "acceptance": Acceptance(tuple(rates["judged"]), tuple(rates["accepted"]))})


@dataclass(frozen=True)
class SpeculationDecision:
    """steps: for this round; probing: a round that takes another γ than the one in force; changed: the one in force is
    another than before."""

    steps: int
    probing: bool
    changed: bool


def choose(
    state: SpeculationState, rules: SpeculationRules, profile: RoundCosts, batch: int
) -> tuple[SpeculationState, SpeculationDecision]:
    """The number of steps for the next round of `batch` requests.

    The γ in force never promises less than 1 - margin of plain decoding: below that it goes at once. Of equal ones the
    smallest is taken.
    """
    rates = state.acceptance.rates(rules.prior)
    speedups = [expected_speedup(profile, rates, batch, steps) for steps in range(rules.most_steps + 1)]
    best = max(range(len(speedups)), key=speedups.__getitem__)
    now = min(state.steps, rules.most_steps)
    losing = speedups[now] < 1 - rules.margin
    better = speedups[best] > speedups[now] * (1 + rules.margin)
    if losing or (better and state.rounds >= rules.dwell):
        state, now, changed = replace(state, steps=best, rounds=0), best, True
    else:
        changed = now != state.steps
        state = replace(state, steps=now, rounds=state.rounds + 1)
    waiting = replace(state, steady=state.steady + 1), SpeculationDecision(now, False, changed)
    on_trial = state.trial > 0 and not now
    share = rules.trial_share if on_trial else rules.probe_share
    if share <= 0 or (state.steady + 1) * share < 1:
        return waiting
    # a plain engine asks for the acceptance of what it would propose; one that proposes knows that, and asks for costs
    others = [steps for steps in range(len(speedups)) if steps != now]
    probe = others[state.probes % len(others)] if now else max(others, key=speedups.__getitem__)
    if not now and not on_trial:
        longer = profile.round_seconds(batch, probe) / profile.round_seconds(batch, 0)
        lost = longer * (1 - speedups[probe])  # in plain rounds
        if (state.steady + 1) * rules.probe_loss < lost:
            return waiting
    return replace(state, steady=0, probes=state.probes + 1), SpeculationDecision(probe, True, changed)


def verified(state: SpeculationState, rules: SpeculationRules, accepted: Sequence[int], steps: int) -> SpeculationState:
    """After a round of `steps`: accepted[i] proposals of request i were right."""
    trial = max(0, state.trial - len(accepted)) if steps else state.trial
    return replace(state, acceptance=state.acceptance.observe(accepted, steps, rules.memory), trial=trial)


def draft_changed(state: SpeculationState, rules: SpeculationRules) -> SpeculationState:
    """Another draft is served: what was seen of the one before says nothing about it."""
    return replace(state, acceptance=Acceptance.none_yet(rules.most_steps), trial=rules.trial)
