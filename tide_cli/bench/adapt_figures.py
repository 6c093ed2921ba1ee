"""What a shift experiment says: series over time, how fast a gain came, final drafts side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tide_cli.bench.rounds import Spread, ratios

STATIC, TIDE, NO_POOL, POLICY = "static", "tide", "no_pool", "policy"  # arms
OWN, PLAIN = "own", "plain"  # further contestants at the end: the draft when its domain's traffic ended; no draft

_SHARE = 0.9  # of the final gain
_LEAST_GAIN = 0.02  # acceptance length; less is no gain whose ninetieth hundredth could be looked for
_CLEAR = 2.0  # standard errors that a gain must be above zero


@dataclass(frozen=True)
class Pass:
    """One piece of traffic, answered by one arm.

    begun: unix seconds; seconds: wall time; requests: answered; tokens: completion tokens; verify_steps: of the target;
    draft: the version served at its end; training: whether a cycle was running then; texts: a digest of each answer.
    """

    phase: int
    piece: int
    arm: str
    begun: float
    seconds: float
    requests: int
    errors: int
    tokens: int
    verify_steps: int
    draft: int | None
    training: bool
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One pass over a domain's held-out prompts with one draft (or none), the trainer idle."""

    domain: str
    concurrency: int
    round: int
    contestant: str
    draft: int | None
    seconds: float
    requests: int
    errors: int
    tokens: int
    verify_steps: int


def acceptance_length(passes: Sequence[Pass | Measured]) -> float | None:
    """Completion tokens / verify steps, each summed; None without a verify step."""
    steps = sum(one.verify_steps for one in passes)
    return sum(one.tokens for one in passes) / steps if steps else None


def output_rate(passes: Sequence[Pass | Measured]) -> float | None:
    """Completion tokens per second, None without any time."""
    seconds = sum(one.seconds for one in passes)
    return sum(one.tokens for one in passes) / seconds if seconds else None


def series(passes: Sequence[Pass], phases: Sequence[str], arms: Sequence[str]) -> list[dict[str, Any]]:
    """A point for each piece that every arm has answered, in order.

    {phase, phase_name, piece, tokens: completion tokens of TIDE's arm so far, seconds: that it took for them,
    wall_s: since the first piece began, arms: {ARM: {al, tok_s, draft}}}.
    """
    points: list[dict[str, Any]] = []
    tokens, seconds = 0, 0.0
    first = min((one.begun for one in passes), default=0.0)
    for (phase, piece), answered in _complete(passes, arms).items():
        own = answered[TIDE]
        tokens, seconds = tokens + own.tokens, seconds + own.seconds
        points.append(
            {
                "phase": phase,
                "phase_name": phases[phase],
                "piece": piece,
                "tokens": tokens,
                "seconds": seconds,
                "wall_s": max(one.begun + one.seconds for one in answered.values()) - first,
                "arms": {
                    arm: {"al": acceptance_length([one]), "tok_s": output_rate([one]), "draft": one.draft}
                    for arm, one in answered.items()
                },
            }
        )
    return points


def phase_figures(passes: Sequence[Pass], phases: Sequence[str], arms: Sequence[str]) -> list[dict[str, Any]]:
    """One object for each phase that has begun.

    {name, visit, pieces, tokens, arms: {ARM: {al, tok_s, late_al, late_tok_s, requests, errors, training_share}},
    live: {ARM: {late_ratio, gain, gain_error, clear, to_90, recovered}}}. late: the last third of the pieces. gain: of
    late acceptance length over the static arm's, with its standard error; clear: whether it is above the noise. to_90:
    see `ninety`; None for a gain that is not clear. recovered: the same for the gain that the domain's first visit had
    reached; None at the first visit, or where that had no clear gain.
    """
    complete = _complete(passes, arms)
    found: list[dict[str, Any]] = []
    first_gain: dict[tuple[str, str], float | None] = {}
    visits: dict[str, int] = {}
    for number, name in enumerate(phases):
        answered = [at for (phase, _), at in complete.items() if phase == number]
        if not answered:
            break
        late = answered[-max(1, len(answered) // 3) :]
        of: dict[str, Any] = {arm: _arm_figures([at[arm] for at in answered], [at[arm] for at in late]) for arm in arms}
        live = {}
        for arm in arms:
            if arm == STATIC:
                continue
            gain = _difference(of[arm]["late_al"], of[STATIC]["late_al"])
            own, static = [at[arm] for at in answered], [at[STATIC] for at in answered]
            error = gain_error(own, static, len(late))
            clear = error is not None and gain >= max(_LEAST_GAIN, _CLEAR * error)
            before = first_gain.setdefault((arm, name), gain if clear else None)
            live[arm] = {
                "late_ratio": _ratio(of[arm]["late_tok_s"], of[STATIC]["late_tok_s"]),
                "gain": gain,
                "gain_error": error,
                "clear": clear,
                "to_90": ninety(own, static, gain, len(late)) if clear else None,
                "recovered": ninety(own, static, before, len(late)) if before and name in visits else None,
            }
        visits[name] = visits.get(name, -1) + 1
        tokens = sum(at[TIDE].tokens for at in answered)
        found.append(
            {"name": name, "visit": visits[name], "pieces": len(answered), "tokens": tokens, "arms": of, "live": live}
        )
    return found


def ninety(own: Sequence[Pass], static: Sequence[Pass], gain: float, window: int) -> dict[str, float] | None:
    """Where the gain in acceptance length over the static arm first reaches 90 % of `gain`; None where it never does.

    own, static: the pieces of one phase, answered by the two; gain: above zero, over `window` pieces. A point looks
    back over as many pieces of both, the same requests, so that hard and easy prompts cancel and one lucky piece is no
    gain. {tokens, seconds, wall_s}: from the phase's begin to the end of the last of them; seconds of this arm alone,
    wall_s with everything in between.
    """
    for end in range(window, len(own) + 1):
        seen = slice(end - window, end)
        if _difference(acceptance_length(own[seen]), acceptance_length(static[seen])) >= _SHARE * gain:
            passed = own[:end]
            begun = min(own[0].begun, static[0].begun)
            return {
                "tokens": sum(one.tokens for one in passed),
                "seconds": sum(one.seconds for one in passed),
                "wall_s": passed[-1].begun + passed[-1].seconds - begun,
            }
    return None


def gain_error(own: Sequence[Pass], static: Sequence[Pass], window: int) -> float | None:
    """Standard error of a gain over `window` pieces; None with one piece alone.

    From the differences between consecutive pieces (the mean square successive difference, von Neumann 1941): the rise
    that is looked for widens them less than it widens the deviations from a mean.
    """
    gains = [
        _difference(acceptance_length([one]), acceptance_length([other]))
        for one, other in zip(own, static, strict=True)
    ]
    squares = [(after - before) ** 2 for before, after in pairwise(gains)]
    return math.sqrt(sum(squares) / len(squares) / 2 / window) if squares else None


def identical(passes: Sequence[Pass], arms: Sequence[str]) -> dict[str, int]:
    """{requests, same}: requests that every arm has answered, and those that all answered with the same text."""
    pairs = [at for at in _complete(passes, arms).values() if all(not one.errors for one in at.values())]
    texts = [list(zip(*(at[arm].texts for arm in arms), strict=True)) for at in pairs]
    together = [answers for piece in texts for answers in piece]
    return {"requests": len(together), "same": sum(len(set(answers)) == 1 for answers in together)}


def domain_figures(measured: Sequence[Measured]) -> dict[str, dict[str, Any]]:
    """Each domain's figures at the first concurrency that was measured, and under `at` those of every one.

    {static_tok_s, tide_tok_s, ratio, static_al, tide_al, rounds, ratio_spread: [low, high]}; where they were measured
    own_al, own_tok_s, own_ratio, plain_tok_s, tide_to_plain, static_to_plain, and of the policy's arm with its own last
    draft policy_al, policy_tok_s, policy_ratio (to static), policy_to_plain, policy_to_tide. Rates are medians over the
    rounds, ratios medians over the rounds' pairs with the quartiles beside them. requests: to all drafts; errors: those
    that failed. A round with one counts neither in rounds nor in any figure: its rate is of fewer answers than the
    others'.
    """
    domains: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(one.domain for one in measured):
        of = [one for one in measured if one.domain == name]
        at = {c: _side_by_side([one for one in of if one.concurrency == c]) for c in _concurrencies(of)}
        done = {str(c): figures for c, figures in at.items() if figures}
        if done:
            domains[name] = {**next(iter(done.values())), "at": done}
    return domains


def _concurrencies(measured: Sequence[Measured]) -> list[int]:
    return list(dict.fromkeys(one.concurrency for one in measured))


def _side_by_side(measured: Sequence[Measured]) -> dict[str, Any]:
    """Empty before both drafts were measured; rounds and errors alone where each round has a failed request."""
    by_round: dict[int, dict[str, Measured]] = {}
    for one in measured:
        by_round.setdefault(one.round, {})[one.contestant] = one
    names = {name for at in by_round.values() for name in at}
    complete = [at for at in by_round.values() if at.keys() == names]
    if not complete or not {STATIC, TIDE} <= names:
        return {}
    rounds = [at for at in complete if not any(one.errors for one in at.values())]
    figures: dict[str, Any] = {
        "rounds": len(rounds),
        "requests": sum(one.requests for one in measured),
        "errors": sum(one.errors for one in measured),
    }
    if not rounds:
        return figures

    def rates(name: str) -> list[float]:
        return [output_rate([at[name]]) or 0.0 for at in rounds]

    for name in (STATIC, TIDE, OWN, POLICY, PLAIN):
        if name in names:
            figures[f"{name}_tok_s"] = Spread.of(rates(name)).median
            figures[f"{name}_al"] = acceptance_length([at[name] for at in rounds])
    pairs = {"ratio": (TIDE, STATIC), "own_ratio": (OWN, STATIC)}
    pairs |= {f"{name}_to_plain": (name, PLAIN) for name in (TIDE, OWN, STATIC, POLICY)}
    pairs |= {"policy_ratio": (POLICY, STATIC), "policy_to_tide": (POLICY, TIDE)}
    for label, (name, other) in pairs.items():
        if {name, other} <= names and all(rates(other)):
            spread = ratios(rates(name), rates(other))
            figures |= {label: spread.median, f"{label}_spread": [spread.low, spread.high]}
    return figures


def _complete(passes: Sequence[Pass], arms: Sequence[str]) -> dict[tuple[int, int], dict[str, Pass]]:
    """(phase, piece) -> arm -> its pass, in order, for pieces that every arm has answered."""
    by_piece: dict[tuple[int, int], dict[str, Pass]] = {}
    for one in passes:
        by_piece.setdefault((one.phase, one.piece), {})[one.arm] = one
    return {key: by_piece[key] for key in sorted(by_piece) if set(arms) <= by_piece[key].keys()}


def _arm_figures(passes: Sequence[Pass], late: Sequence[Pass]) -> dict[str, Any]:
    return {
        "al": acceptance_length(passes),
        "tok_s": output_rate(passes),
        "late_al": acceptance_length(late),
        "late_tok_s": output_rate(late),
        "requests": sum(one.requests for one in passes),
        "errors": sum(one.errors for one in passes),
        "training_share": sum(one.training for one in passes) / len(passes),
    }


def _difference(value: float | None, other: float | None) -> float:
    return 0.0 if value is None or other is None else value - other


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
