"""What answers say: rates, latencies, acceptance, by band of length, with intervals. Pure.

Latencies are seconds from the sending of a request. An inter-token latency is the gap between two arrivals shared
among the tokens of the second one, as SGLang counts it; `gap` is that gap undivided, which is what a reader sees.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tide_cli.bench.client import Answer

PROMPT_BANDS = (64, 256, 1024, 4096)  # tokens; a band begins at one and ends before the next
OUTPUT_BANDS = (32, 128, 512, 2048)

_STUDENT = (12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # t of 95 %, by degrees of freedom from 1 on
_RESAMPLES = 1000
_SEED = 0


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear between the two nearest; None without values. share: 0 to 100."""
    return float(np.percentile(values, share)) if len(values) else None


def whole(answers: Iterable[Answer]) -> list[Answer]:
    """Those that came to their end."""
    return [answer for answer in answers if answer.error is None]


def reasons(answers: Iterable[Answer]) -> list[str]:
    """Why answers failed, each reason once, five at most."""
    return sorted({answer.error for answer in answers if answer.error})[:5]


def seconds_of(answers: Sequence[Answer]) -> float:
    """From the first request sent to the last token of a whole answer; 0 without one."""
    ends = [answer.last for answer in whole(answers) if answer.last is not None]
    return max(ends) - min(answer.sent for answer in answers) if ends else 0.0


def output_rate(answers: Sequence[Answer]) -> float | None:
    """Completion tokens of whole answers per second of the pass."""
    seconds = seconds_of(answers)
    return sum(answer.completion_tokens for answer in whole(answers)) / seconds if seconds else None


def acceptance_length(answers: Iterable[Answer]) -> float | None:
    """Completion tokens / verify steps, each summed; None without a verify step."""
    measured = [answer for answer in whole(answers) if answer.verify_steps]
    steps = sum(answer.verify_steps or 0 for answer in measured)
    return sum(answer.completion_tokens for answer in measured) / steps if steps else None


def acceptance_rate(answers: Iterable[Answer]) -> float | None:
    """Accepted drafts / drafts, the target's own token not counted; None without a draft."""
    measured = [answer for answer in whole(answers) if answer.drafts]
    drafts = sum(answer.drafts or 0 for answer in measured)
    accepted = sum(place * steps for answer in measured for place, steps in enumerate(answer.accepted_steps))
    return accepted / drafts if drafts else None


def acceptance_by_position(answers: Iterable[Answer]) -> list[float]:
    """For draft 1, 2, …: the part of all verify steps in which it was accepted, and with it every one before it."""
    counts = np.zeros(0)
    for answer in whole(answers):
        steps = np.array(answer.accepted_steps, dtype=float)
        counts, steps = (np.pad(one, (0, max(len(counts), len(steps)) - len(one))) for one in (counts, steps))
        counts = counts + steps
    reached = np.cumsum(counts[::-1])[::-1]
    return [float(value / reached[0]) for value in reached[1:]] if len(reached) > 1 and reached[0] else []


def gaps(answer: Answer) -> list[tuple[float, int]]:
    """(seconds since the arrival before, tokens that came) of every arrival but the first."""
    found: list[tuple[float, int]] = []
    before = None
    for moment in answer.token_times:
        if before is None:
            before = moment
        elif moment > before:
            found.append((moment - before, 1))
            before = moment
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + 1)
    return found


def inter_token(answers: Iterable[Answer]) -> list[float]:
    """Seconds of every token after those of the first arrival: its gap shared among the tokens that came with it."""
    return [seconds / tokens for answer in answers for seconds, tokens in gaps(answer) for _ in range(tokens)]


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """The figures of one pass or of several whose moments do not overlap the question (bands, domains).

    requests, errors, timeouts: counts, a time-out being an error too; *_ms: milliseconds; None where nothing is there.
    """
    good = whole(answers)
    first = [answer.first - answer.sent for answer in good if answer.first is not None]
    end = [answer.last - answer.sent for answer in good if answer.last is not None]
    later = inter_token(good)
    pauses = [seconds for answer in good for seconds, _ in gaps(answer)]

    def ms(values: Sequence[float], share: float) -> float | None:
        value = percentile(values, share)
        return None if value is None else value * 1e3

    return {
        "requests": len(answers),
        "errors": len(answers) - len(good),
        "timeouts": sum(answer.timed_out for answer in answers),
        "prompt_tokens": sum(answer.prompt_tokens for answer in good),
        "output_tokens": sum(answer.completion_tokens for answer in good),
        "ttft_p50_ms": ms(first, 50),
        "ttft_p95_ms": ms(first, 95),
        "itl_p50_ms": ms(later, 50),
        "itl_p95_ms": ms(later, 95),
        "itl_p99_ms": ms(later, 99),
        "gap_p95_ms": ms(pauses, 95),
        "gap_max_ms": ms(pauses, 100),
        "e2e_p50_ms": ms(end, 50),
        "e2e_p95_ms": ms(end, 95),
        "acceptance_length": acceptance_length(good),
        "acceptance_rate": acceptance_rate(good),
        "acceptance_by_position": acceptance_by_position(good),
    }


def pass_figures(answers: Sequence[Answer]) -> dict[str, Any]:
    """`summarise` of one pass, and what needs its duration: seconds, output_tok_s, requests_s."""
    seconds = seconds_of(answers)
    return summarise(answers) | {
        "seconds": seconds,
        "output_tok_s": output_rate(answers),
        "requests_s": len(whole(answers)) / seconds if seconds else None,
    }


def bands(answers: Iterable[Answer], length: Callable[[Answer], int], bounds: Sequence[int]) -> list[dict[str, Any]]:
    """`summarise` of the whole answers of each band of length that has some: {from, to, …}; to is None for the last."""
    edges = [0, *bounds]
    found = []
    for low, high in zip(edges, [*bounds, None], strict=True):
        inside = [one for one in whole(answers) if low <= length(one) and (high is None or length(one) < high)]
        if inside:
            found.append({"from": low, "to": high} | summarise(inside))
    return found


def resampled(table: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A statistic over rounds and requests that are drawn anew, each request with its answers of every drawn round.

    table: (columns, rounds, requests), zeros for a request that failed; statistic: takes the sums of each column,
    shape (columns, resamples). One fewer of each is drawn than there are, so that the variance is not too small where
    there are few (Rao and Wu, 1988). Empty for fewer than two requests.
    """
    table = table[:, table.any(axis=(0, 2))][..., table.any(axis=(0, 1))]
    _, rounds, requests = table.shape
    if requests < 2:
        return np.empty(0)
    rng = np.random.default_rng(_SEED)

    def times(count: int) -> np.ndarray:
        return rng.multinomial(max(count - 1, 1), np.full(count, 1 / count))

    sums = np.array([table @ times(requests) @ times(rounds) for _ in range(_RESAMPLES)]).T
    with np.errstate(all="ignore"):
        values = statistic(sums)
    return values[np.isfinite(values)]


def middle_95(values: np.ndarray) -> tuple[float, float] | None:
    """The percentile interval of a resampled statistic; None without one."""
    if not len(values):
        return None
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def length_interval(rounds: Sequence[Sequence[Answer]]) -> tuple[float, float] | None:
    """The 95 % interval of the acceptance length. rounds: the answers of each, in the order of the requests."""
    measured = [
        [
            (one.completion_tokens, one.verify_steps or 0) if one.verify_steps and not one.error else (0, 0)
            for one in row
        ]
        for row in rounds
    ]
    return middle_95(resampled(_table(measured, 2), lambda sums: sums[0] / sums[1]))


def rate_interval(rounds: Sequence[Sequence[Answer]], rate: float | None) -> tuple[float, float] | None:
    """The 95 % interval around an output rate that was measured over these rounds; see `_around`."""
    return _around(
        rate, _table([[_under_way(one) for one in row] for row in rounds], 2), lambda sums: sums[0] / sums[1]
    )


def rate_ratio_interval(
    rounds: Sequence[Sequence[tuple[Answer, Answer]]], ratio: float | None
) -> tuple[float, float] | None:
    """The 95 % interval around a ratio of two output rates that was measured over these rounds; see `_around`.

    rounds: (ours, theirs) for each request, answered under the same load; only what both answered counts.
    """
    both = [
        [(*_under_way(a), *_under_way(b)) if not (a.error or b.error) else (0.0,) * 4 for a, b in row] for row in rounds
    ]
    return _around(ratio, _table(both, 4), lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]))


def _under_way(answer: Answer) -> tuple[float, float]:
    """(completion tokens, seconds from sending to the last one); zeros for one that failed."""
    if answer.error or answer.last is None:
        return 0.0, 0.0
    return float(answer.completion_tokens), answer.last - answer.sent


def _table(rounds: Sequence[Sequence[Sequence[float]]], columns: int) -> np.ndarray:
    requests = len(rounds[0]) if rounds else 0
    return np.array(rounds, dtype=float).reshape(len(rounds), requests, columns).transpose(2, 0, 1)


def _around(
    value: float | None, table: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]
) -> tuple[float, float] | None:
    """Student's interval around a rate or a ratio, on a logarithmic scale; None for a single round, which cannot say
    how much the machine drifts from one to the next.

    The standard error is that of a like figure over resampled rounds and requests: tokens per second that a request was
    under way, which leaves out the pauses between requests.
    """
    rounds = int(table.any(axis=(0, 2)).sum())
    values = resampled(table, statistic)
    if not value or rounds < 2 or not len(values) or values.min() <= 0:
        return None
    reach = _STUDENT[min(rounds - 1, len(_STUDENT)) - 1] * np.log(values).std()
    return float(value * np.exp(-reach)), float(value * np.exp(reach))


def paired_ratio(values: Sequence[float | None], others: Sequence[float | None]) -> dict[str, Any] | None:
    """{median, min, max, rounds}: ours / theirs, round by round; None where no round has both."""
    found = [
        value / other
        for value, other in zip(values, others, strict=True)
        if value is not None and other  # not by 0
    ]
    if not found:
        return None
    return {"median": statistics.median(found), "min": min(found), "max": max(found), "rounds": len(found)}
