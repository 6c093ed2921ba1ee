"""What a shift experiment says of each phase: lengths and rates, the gain, and how fast it came. Pure.

A rate is of pieces that were answered under one load: where there were several concurrencies, of the first one, and
under `at` of each. Acceptance lengths, and with them gains, are of all pieces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tide_cli.bench.adapt_figures import STATIC, TIDE, Pass, acceptance_length, complete, output_rate

_SHARE = 0.9  # of the final gain
_LEAST_GAIN = 0.02  # acceptance length; less is no gain whose ninetieth hundredth could be looked for
_CLEAR = 2.0  # standard errors that a gain must be above zero

_Answered = Mapping[str, Pass]  # a piece: arm to its pass


def phase_figures(passes: Sequence[Pass], phases: Sequence[str], arms: Sequence[str]) -> list[dict[str, Any]]:
    """One object for each phase that has begun.

    {name, visit, pieces, tokens, arms: {ARM: {al, tok_s, late_al, late_tok_s, requests, errors, training_share}},
    live: {ARM: {late_ratio, gain, gain_error, clear, to_90, recovered}}}. late: the last third of the pieces. gain: of
    late acceptance length over the static arm's, with its standard error; clear: whether it is above the noise. to_90:
    see `ninety`; None for a gain that is not clear. recovered: the same for the gain that the domain's first visit had
    reached; None at the first visit, or where that had no clear gain. With several concurrencies there is also
    at: {CONCURRENCY: {ARM: {tok_s, late_tok_s, late_ratio}}}, each over its own pieces; the static arm has no ratio.
    """
    every = complete(passes, arms)
    found: list[dict[str, Any]] = []
    first_gain: dict[tuple[str, str], float | None] = {}
    visits: dict[str, int] = {}
    for number, name in enumerate(phases):
        answered = [piece for (phase, _), piece in every.items() if phase == number]
        if not answered:
            break
        late = _late(answered)
        at = {load: _rates(pieces, arms) for load, pieces in _by_load(answered).items()}
        first = next(iter(at.values()))
        of: dict[str, Any] = {arm: _arm_figures(answered, late, arm, first[arm]) for arm in arms}
        live = {}
        for arm in arms:
            if arm == STATIC:
                continue
            gain = _difference(of[arm]["late_al"], of[STATIC]["late_al"])
            own, static = [piece[arm] for piece in answered], [piece[STATIC] for piece in answered]
            error = gain_error(own, static, len(late))
            clear = error is not None and gain >= max(_LEAST_GAIN, _CLEAR * error)
            before = first_gain.setdefault((arm, name), gain if clear else None)
            live[arm] = {
                "late_ratio": first[arm]["late_ratio"],
                "gain": gain,
                "gain_error": error,
                "clear": clear,
                "to_90": ninety(own, static, gain, len(late)) if clear else None,
                "recovered": ninety(own, static, before, len(late)) if before and name in visits else None,
            }
        visits[name] = visits.get(name, -1) + 1
        tokens = sum(piece[TIDE].tokens for piece in answered)
        counts = {"name": name, "visit": visits[name], "pieces": len(answered), "tokens": tokens}
        found.append({**counts, "arms": of, "live": live} | ({"at": at} if len(at) > 1 else {}))
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


def _by_load(answered: Sequence[_Answered]) -> dict[str, list[_Answered]]:
    """Concurrency to its pieces, in order of their first one."""
    found: dict[str, list[_Answered]] = {}
    for piece in answered:
        found.setdefault(str(piece[TIDE].concurrency), []).append(piece)
    return found


def _late(pieces: Sequence[_Answered]) -> Sequence[_Answered]:
    return pieces[-max(1, len(pieces) // 3) :]


def _rates(pieces: Sequence[_Answered], arms: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """Of pieces under one load. Arm to {tok_s, late_tok_s, late_ratio: to the static arm's}, the static one's first."""
    found: dict[str, dict[str, float | None]] = {}
    for arm in arms:
        whole, late = (output_rate([piece[arm] for piece in of]) for of in (pieces, _late(pieces)))
        found[arm] = {"tok_s": whole, "late_tok_s": late}
    for arm in arms:
        if arm != STATIC:
            found[arm]["late_ratio"] = _ratio(found[arm]["late_tok_s"], found[STATIC]["late_tok_s"])
    return found


def _arm_figures(
    answered: Sequence[_Answered], late: Sequence[_Answered], arm: str, rates: Mapping[str, float | None]
) -> dict[str, Any]:
    passes = [piece[arm] for piece in answered]
    return {
        "al": acceptance_length(passes),
        "tok_s": rates["tok_s"],
        "late_al": acceptance_length([piece[arm] for piece in late]),
        "late_tok_s": rates["late_tok_s"],
        "requests": sum(one.requests for one in passes),
        "errors": sum(one.errors for one in passes),
        "training_share": sum(one.training for one in passes) / len(passes),
    }


def _difference(value: float | None, other: float | None) -> float:
    return 0.0 if value is None or other is None else value - other


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
