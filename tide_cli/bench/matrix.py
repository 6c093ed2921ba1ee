"""What a matrix measures, and what its passes say together. Pure.

A pass is one mode under one load in one round. Every mode answers the same requests in each pass, each round begins
with another mode, and ratios are taken between passes of one round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
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
from tide_cli.bench.requests import SLOWEST
from tide_cli.json_files import checked
from tide_cli.setting_values import MOST_RUNNING

MODES = ("plain", "static", "adapted", "policy")
COMPARED = (
    *("output_tok_s", "requests_s", "ttft_p50_ms", "ttft_p95_ms", "itl_p50_ms", "itl_p95_ms", "itl_p99_ms"),
    *("gap_p95_ms", "e2e_p50_ms", "e2e_p95_ms", "acceptance_length"),
)
BEST_OF = ("policy", "plain", "adapted")  # a policy is measured against the better of the two others
GUARDED = (*COMPARED, "acceptance_rate", "errors", "timeouts", "kv_use_peak", "memory", "gpu_memory")


@dataclass(frozen=True)
class Load:
    """Requests at a time, or requests per second that arrive whatever has been answered; the other one is None.

    ValueError for other numbers of either than can be.
    """

    concurrency: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        at_a_time = self.rate is None and self.concurrency is not None and 1 <= self.concurrency <= MOST_RUNNING
        a_second = self.concurrency is None and self.rate is not None and self.rate >= SLOWEST
        if not (at_a_time or a_second):
            raise ValueError(f"a load is 1 to {MOST_RUNNING} requests at a time, or from {SLOWEST} a second on")

    def words(self) -> str:
        return f"concurrency {self.concurrency}" if self.concurrency else f"{self.rate:g} requests/s"


@dataclass(frozen=True)
class MatrixPlan:
    """Everything that decides what is measured; a resumed measurement goes on with the same.

    drafts: mode -> {draft, sha256} of those that have one; draft None: the target's own. workload: {path, sha256,
    domains}. requests: of each pass. timeout: seconds of one request.
    """

    target: str
    target_revision: str | None
    modes: tuple[str, ...]
    drafts: dict[str, dict[str, Any]]
    loads: tuple[Load, ...]
    rounds: int
    workload: dict[str, Any]
    requests: int
    max_tokens: int
    temperature: float
    seed: int
    timeout: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MatrixPlan:
        """Raises ValueError where it is none."""
        return checked(cls, values)


@dataclass(frozen=True)
class _Observed:
    """What observe.py sees."""

    figures: dict[str, int | float | dict[str, int | float] | None]


@dataclass(frozen=True)
class Pass:
    """One pass. answers: in the order of the requests, moments from its beginning; observed: see observe.py."""

    round: int
    mode: str
    load: Load
    answers: tuple[Answer, ...]
    observed: dict[str, Any]

    @property
    def key(self) -> tuple[int, str, Load]:
        return self.round, self.mode, self.load

    def to_json(self) -> dict[str, Any]:
        """Without the texts: a digest of each answer's stands for it."""
        begun = min((answer.sent for answer in self.answers), default=0.0)
        return {
            "round": self.round,
            "mode": self.mode,
            "load": asdict(self.load),
            "observed": self.observed,
            "answers": [_answer_to_json(answer, begun) for answer in self.answers],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Pass:
        """Raises ValueError, TypeError or KeyError where it is none."""
        answers = [_answer_from_json(answer) for answer in values["answers"]]
        checked(_Observed, {"figures": values["observed"]})
        return checked(cls, {**values, "answers": answers})


def order(plan: MatrixPlan, *, together: bool) -> list[tuple[int, str, Load]]:
    """The passes in turn: (round, mode, load). together: all engines stand at once, so that modes alternate most.

    Else a mode's engine is started once a round and answers under every load before it is ended.
    """
    found = []
    for number in range(plan.rounds):
        shift = number % len(plan.modes)
        modes = plan.modes[shift:] + plan.modes[:shift]
        if together:
            found += [(number, mode, load) for load in plan.loads for mode in modes]
        else:
            found += [(number, mode, load) for mode in modes for load in plan.loads]
    return found


def figures(plan: MatrixPlan, passes: Sequence[Pass]) -> dict[str, Any]:
    """{cells, ratios}: one cell for each mode and load that was measured, one ratio for each pair of modes."""
    by_cell: dict[tuple[str, Load], list[Pass]] = {}
    for one in sorted(passes, key=lambda one: one.round):
        by_cell.setdefault((one.mode, one.load), []).append(one)
    cells = [
        _cell(mode, load, by_cell[mode, load]) for load in plan.loads for mode in plan.modes if (mode, load) in by_cell
    ]
    ratios = [
        _ratio(load, (mode, by_cell[mode, load]), (other, by_cell[other, load]))
        for load in plan.loads
        for other, mode in combinations(plan.modes, 2)
        if (mode, load) in by_cell and (other, load) in by_cell
    ]
    ratios += [
        _best_ratio(load, by_cell["policy", load], [by_cell["plain", load], by_cell["adapted", load]])
        for load in plan.loads
        if all((mode, load) in by_cell for mode in BEST_OF)
    ]
    return {"cells": cells, "ratios": [ratio for ratio in ratios if ratio["rounds"]]}


def _cell(mode: str, load: Load, passes: Sequence[Pass]) -> dict[str, Any]:
    """Latencies and acceptance over the requests of all rounds; rates are medians over the rounds."""
    answers = [answer for one in passes for answer in one.answers]
    rounds = [pass_figures(one.answers) for one in passes]
    rates = {name: _median(one[name] for one in rounds) for name in ("output_tok_s", "requests_s", "seconds")}
    observed = {name for one in passes for name in one.observed}
    domains = dict.fromkeys(answer.request.domain for answer in answers)
    return {
        "mode": mode,
        **asdict(load),
        "where": f"{mode} at {load.words()}",
        "rounds": len(passes),
        **rates,
        **summarise(answers),
        **{name: _observed(name, [one.observed.get(name) for one in passes]) for name in sorted(observed)},
        "intervals": {
            "output_tok_s": rate_interval(answers, rates["output_tok_s"]),
            "acceptance_length": length_interval(answers),
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
    answers = [both for a, b in pairs for both in zip(a.answers, b.answers, strict=True)]
    whole = [(a, b) for a, b in answers if a.error is None and b.error is None]
    compared = {name: paired_ratio([a[name] for a, _ in rounds], [b[name] for _, b in rounds]) for name in COMPARED}
    if compared["output_tok_s"] is not None:
        compared["output_tok_s"]["interval"] = rate_ratio_interval(answers)
    return {
        "mode": mode,
        "to": to,
        **asdict(load),
        "where": f"{mode} at {load.words()}",
        "rounds": len(pairs),
        **compared,
        "same_text": sum(a.text == b.text for a, b in whole) / len(whole) if whole else None,
        "by_domain": [
            {"domain": name} | _domain_ratio([both for both in answers if both[0].request.domain == name])
            for name in dict.fromkeys(a.request.domain for a, _ in answers)
        ],
    }


def _best_ratio(load: Load, policy: Sequence[Pass], others: Sequence[Sequence[Pass]]) -> dict[str, Any]:
    """Of the policy to the better of plain decoding and of always drafting, in each round: what it has missed."""
    rates = [{one.round: output_rate(one.answers) or 0.0 for one in side} for side in (policy, *others)]
    rounds = sorted(set.intersection(*map(set, rates)))
    best = [max(side[number] for side in rates[1:]) for number in rounds]
    return {
        "mode": "policy",
        "to": "best",
        **asdict(load),
        "where": f"policy at {load.words()}",
        "rounds": len(rounds),
        "output_tok_s": paired_ratio([rates[0][number] for number in rounds], best),
    }


def _domain_ratio(pairs: Sequence[tuple[Answer, Answer]]) -> dict[str, Any]:
    """request_tok_s: ratio of tokens per second that requests were under way, over all rounds, with its interval."""
    whole = [(a, b) for a, b in pairs if a.error is None and b.error is None and a.last and b.last]
    if not whole:
        return {"request_tok_s": None}
    rates = [
        sum(one.completion_tokens for one in side) / sum((one.last or 0.0) - one.sent for one in side)
        for side in zip(*whole, strict=True)
    ]
    return {"request_tok_s": {"ratio": rates[0] / rates[1], "interval": rate_ratio_interval(whole)}}


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


def _answer_to_json(answer: Answer, begun: float) -> dict[str, Any]:
    return {
        "domain": answer.request.domain,
        "sent": round(answer.sent - begun, 6),
        "times": [round(moment - begun, 6) for moment in answer.token_times],
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "verify_steps": answer.verify_steps,
        "drafts": answer.drafts,
        "accepted_steps": list(answer.accepted_steps),
        "text": hashlib.sha256(answer.text.encode()).hexdigest()[:16],
        "error": answer.error,
        "timed_out": answer.timed_out,
    }


def _answer_from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an Answer, unchecked."""
    times = values["times"]
    return {
        **values,
        "request": {"messages": (), "max_tokens": 0, "domain": values["domain"]},
        "first": times[0] if times else None,
        "last": times[-1] if times else None,
        "token_times": times,
    }
