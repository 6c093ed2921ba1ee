"""What a shift experiment says: series over time, final drafts side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tide_cli.bench.rounds import Spread, ratios

STATIC, TIDE, NO_POOL, POLICY = "static", "tide", "no_pool", "policy"  # arms
OWN, PLAIN = "own", "plain"  # further contestants at the end: the draft when its domain's traffic ended; no draft


@dataclass(frozen=True)
class Pass:
    """One piece of traffic, answered by one arm.

    begun: unix seconds; seconds: wall time; requests: answered; tokens: completion tokens; verify_steps: of the target;
    draft: the version served at its end; training: whether a cycle was running then; texts: a digest of each answer;
    concurrency: requests at a time, None where they were sent at moments of their own; reasons: why requests failed.
    verified_tokens: those of answers with a verify step, None in records that are older.
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
    concurrency: int | None = None
    reasons: tuple[str, ...] = ()
    verified_tokens: int | None = None


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
    reasons: tuple[str, ...] = ()
    verified_tokens: int | None = None


def acceptance_length(passes: Sequence[Pass | Measured]) -> float | None:
    """Completion tokens / verify steps, each summed over answers with a verify step; None without one."""
    steps = sum(one.verify_steps for one in passes)
    tokens = sum(one.tokens if one.verified_tokens is None else one.verified_tokens for one in passes)
    return tokens / steps if steps else None


def output_rate(passes: Sequence[Pass | Measured]) -> float | None:
    """Completion tokens per second, None without any time."""
    seconds = sum(one.seconds for one in passes)
    return sum(one.tokens for one in passes) / seconds if seconds else None


def series(passes: Sequence[Pass], phases: Sequence[str], arms: Sequence[str]) -> list[dict[str, Any]]:
    """A point for each piece that every arm has answered, in order.

    {phase, phase_name, piece, concurrency, tokens: completion tokens of TIDE's arm so far, seconds: that it took for
    them, wall_s: since the first piece began, arms: {ARM: {al, tok_s, draft}}}.
    """
    points: list[dict[str, Any]] = []
    tokens, seconds = 0, 0.0
    first = min((one.begun for one in passes), default=0.0)
    for (phase, piece), answered in complete(passes, arms).items():
        own = answered[TIDE]
        tokens, seconds = tokens + own.tokens, seconds + own.seconds
        points.append(
            {
                "phase": phase,
                "phase_name": phases[phase],
                "piece": piece,
                "concurrency": own.concurrency,
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


def identical(passes: Sequence[Pass], arms: Sequence[str]) -> dict[str, int]:
    """{requests, same}: requests that every arm has answered, and those that all answered with the same text."""
    pairs = [at for at in complete(passes, arms).values() if all(not one.errors for one in at.values())]
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
    every = [at for at in by_round.values() if at.keys() == names]
    if not every or not {STATIC, TIDE} <= names:
        return {}
    rounds = [at for at in every if not any(one.errors for one in at.values())]
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


def complete(passes: Sequence[Pass], arms: Sequence[str]) -> dict[tuple[int, int], dict[str, Pass]]:
    """(phase, piece) -> arm -> its pass, in order, for pieces that every arm has answered."""
    by_piece: dict[tuple[int, int], dict[str, Pass]] = {}
    for one in passes:
        by_piece.setdefault((one.phase, one.piece), {})[one.arm] = one
    return {key: by_piece[key] for key in sorted(by_piece) if set(arms) <= by_piece[key].keys()}
