"""What the passes of a matrix say together: ratios are taken between passes of one round. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import permutations
from statistics import median
from typing import Any

from tide_cli.bench.client import Answer
from tide_cli.bench.figures import (
    OUTPUT_BANDS,
    PROMPT_BANDS,
    bands,
    length_interval,
    output_rate,
    paired_ratio,
    pass_figures,
    rate_interval,
    rate_ratio_interval,
    summarise,
)
from tide_cli.bench.matrix import Load, MatrixPlan, Pass

COMPARED = (
    *("output_tok_s", "requests_s", "ttft_p50_ms", "ttft_p95_ms", "itl_p50_ms", "itl_p95_ms", "itl_p99_ms"),
    *("gap_p95_ms", "e2e_p50_ms", "e2e_p95_ms", "acceptance_length"),
)
BEST_OF = ("policy", "plain", "adapted")  # a policy is measured against the better of the two others
GUARDED = (*COMPARED, "acceptance_rate", "errors", "timeouts", "kv_use_peak", "memory", "gpu_memory")


def figures(plan: MatrixPlan, passes: Sequence[Pass]) -> dict[str, Any]:
    """{cells, ratios}: one cell for each mode and load that was measured, one ratio for each of two modes to the other.

    A failed request is in no rate, latency or ratio: `errors` counts them, in a ratio by mode.
    """
    by_cell: dict[tuple[str, Load], list[Pass]] = {}
    for one in sorted(passes, key=lambda one: one.round):
        by_cell.setdefault((one.mode, one.load), []).append(one)
    cells = [
        _cell(mode, load, by_cell[mode, load]) for load in plan.loads for mode in plan.modes if (mode, load) in by_cell
    ]
    ratios = [
        _ratio(load, (mode, by_cell[mode, load]), (other, by_cell[other, load]))
        for load in plan.loads
        for other, mode in permutations(plan.modes, 2)
        if (mode, load) in by_cell and (other, load) in by_cell
    ]
    ratios += [
        _best_ratio(load, {mode: by_cell[mode, load] for mode in BEST_OF})
        for load in plan.loads
        if all((mode, load) in by_cell for mode in BEST_OF)
    ]
    return {"cells": cells, "ratios": [ratio for ratio in ratios if ratio["rounds"]]}


def _cell(mode: str, load: Load, passes: Sequence[Pass]) -> dict[str, Any]:
    """Rates and latencies are medians over the rounds, as ratios are; the rest is of the requests of all rounds."""
    answers = [answer for one in passes for answer in one.answers]
    rounds = [pass_figures(one.answers) for one in passes]
    by_round = [name for name in COMPARED if name != "acceptance_length"] + ["seconds"]
    medians = {name: _median(one[name] for one in rounds) for name in by_round}
    observed = {name for one in passes for name in one.observed}
    domains = dict.fromkeys(answer.request.domain for answer in answers)
    return {
        "mode": mode,
        **asdict(load),
        "where": f"{mode} at {load.words()}",
        "rounds": len(passes),
        **summarise(answers),
        **medians,
        **{name: _observed(name, [one.observed.get(name) for one in passes]) for name in sorted(observed)},
        "intervals": {
            "output_tok_s": rate_interval([one.answers for one in passes], medians["output_tok_s"]),
            "acceptance_length": length_interval([one.answers for one in passes]),
        },
        "spread": {name: _range(one[name] for one in rounds) for name in ("output_tok_s", "itl_p95_ms")},
        "by_domain": [
            {"domain": name} | summarise([answer for answer in answers if answer.request.domain == name])
            for name in domains
        ],
        "by_prompt_tokens": bands(answers, lambda answer: answer.prompt_tokens, PROMPT_BANDS),
        "by_output_tokens": bands(answers, lambda answer: answer.completion_tokens, OUTPUT_BANDS),
        "reasons": sorted({answer.error for answer in answers if answer.error})[:5],
    }


def _ratio(load: Load, ours: tuple[str, Sequence[Pass]], theirs: tuple[str, Sequence[Pass]]) -> dict[str, Any]:
    """{mode, to, FIGURE: {median, min, max, rounds}} over the rounds that both have; see `rate_ratio_interval`."""
    (mode, own), (to, others) = ours, theirs
    other = {one.round: one for one in others}
    pairs = [(one, other[one.round]) for one in own if one.round in other]
    rounds = [(pass_figures(a.answers), pass_figures(b.answers)) for a, b in pairs]
    by_round = [list(zip(a.answers, b.answers, strict=True)) for a, b in pairs]
    answers = [both for row in by_round for both in row]
    whole = [(a, b) for a, b in answers if a.error is None and b.error is None]
    compared = {name: paired_ratio([a[name] for a, _ in rounds], [b[name] for _, b in rounds]) for name in COMPARED}
    if compared["output_tok_s"] is not None:
        compared["output_tok_s"]["interval"] = rate_ratio_interval(by_round, compared["output_tok_s"]["median"])
    return {
        "mode": mode,
        "to": to,
        **asdict(load),
        "where": f"{mode} at {load.words()}",
        "rounds": len(pairs),
        "requests": len(answers),
        "errors": {mode: _errors(a for a, _ in answers), to: _errors(b for _, b in answers)},
        **compared,
        "same_text": sum(a.text == b.text for a, b in whole) / len(whole) if whole else None,
        "by_domain": [
            {"domain": name}
            | _domain_ratio([[both for both in row if both[0].request.domain == name] for row in by_round])
            for name in dict.fromkeys(a.request.domain for a, _ in answers)
        ],
    }


def _best_ratio(load: Load, sides: Mapping[str, Sequence[Pass]]) -> dict[str, Any]:
    """Of the policy to the better of plain decoding and of always drafting, in each round: what it has missed.

    sides: the passes of each of BEST_OF.
    """
    own, *others = ({one.round: output_rate(one.answers) or 0.0 for one in side} for side in sides.values())
    rounds = sorted(set(own).intersection(*others))
    best = [max(side[number] for side in others) for number in rounds]
    return {
        "mode": "policy",
        "to": "best",
        **asdict(load),
        "where": f"policy at {load.words()}",
        "rounds": len(rounds),
        "requests": sum(len(one.answers) for one in sides["policy"]),
        "errors": {mode: _errors(answer for one in side for answer in one.answers) for mode, side in sides.items()},
        "output_tok_s": paired_ratio([own[number] for number in rounds], best),
    }


def _errors(answers: Iterable[Answer]) -> int:
    return sum(answer.error is not None for answer in answers)


def _domain_ratio(rounds: Sequence[Sequence[tuple[Answer, Answer]]]) -> dict[str, Any]:
    """request_tok_s: ratio of tokens per second that requests were under way, over all rounds, with its interval."""
    pairs = [both for row in rounds for both in row]
    whole = [(a, b) for a, b in pairs if a.error is None and b.error is None and a.last and b.last]
    if not whole:
        return {"request_tok_s": None}
    rates = [
        sum(one.completion_tokens for one in side) / sum((one.last or 0.0) - one.sent for one in side)
        for side in zip(*whole, strict=True)
    ]
    ratio = rates[0] / rates[1]
    return {"request_tok_s": {"ratio": ratio, "interval": rate_ratio_interval(rounds, ratio)}}


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def _range(values: Iterable[float | None]) -> tuple[float, float] | None:
    found = [value for value in values if value is not None]
    return (min(found), max(found)) if found else None


def _observed(name: str, values: Sequence[Any]) -> Any:
    """Peaks are peaks of all rounds, counts add up, the rest are medians."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    if isinstance(found[0], dict):
        return {key: sum(value.get(key, 0) for value in found) for key in dict.fromkeys(k for v in found for k in v)}
    return max(found) if name.endswith(("_peak", "memory")) else median(found)
