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

_RESAMPLES = 1000
_SEED = 0


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear between the two nearest; None without values. share: 0 to 100."""
    return float(np.percentile(values, share)) if len(values) else None


def whole(answers: Iterable[Answer]) -> list[Answer]:
    """Those that came to their end."""
    return [answer for answer in answers if answer.error is None]


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


def bootstrap(
    columns: Sequence[Sequence[float]], statistic: Callable[[np.ndarray], np.ndarray], confidence: float = 0.95
) -> tuple[float, float] | None:
    """The percentile interval of a statistic over things that are drawn anew, each with all its columns.

    columns: (values per thing, things); statistic: takes the sums of each column, shape (columns, resamples). None for
    fewer than two things.
    """
    table = np.array(columns, dtype=float)
    count = table.shape[1] if table.ndim == 2 else 0
    if count < 2:
        return None
    drawn = np.random.default_rng(_SEED).integers(0, count, (_RESAMPLES, count))
    with np.errstate(all="ignore"):
        values = statistic(table[:, drawn].sum(axis=2))
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = np.percentile(values, (50 * (1 - confidence), 50 * (1 + confidence)))
    return float(low), float(high)


def length_interval(answers: Iterable[Answer]) -> tuple[float, float] | None:
    """The interval of the acceptance length, over requests."""
    measured = [answer for answer in whole(answers) if answer.verify_steps]
    columns = [[one.completion_tokens for one in measured], [one.verify_steps or 0 for one in measured]]
    return bootstrap(columns, lambda sums: sums[0] / sums[1])


def rate_interval(answers: Iterable[Answer], rate: float | None) -> tuple[float, float] | None:
    """The interval of an output rate, over requests: how it varies with them, scaled to the rate that was measured."""
    measured = [answer for answer in whole(answers) if answer.last is not None]
    columns: list[list[float]] = [
        [one.completion_tokens for one in measured],
        [(one.last or 0.0) - one.sent for one in measured],
    ]
    if rate is None or not sum(columns[1]):
        return None
    found = bootstrap(columns, lambda sums: sums[0] / sums[1])
    scale = rate / (sum(columns[0]) / sum(columns[1]))
    return None if found is None else (found[0] * scale, found[1] * scale)


def rate_ratio_interval(pairs: Sequence[tuple[Answer, Answer]]) -> tuple[float, float] | None:
    """The interval of the ratio of two output rates, over requests that both sides answered.

    pairs: (ours, theirs), answers to the same request under the same load. A rate is taken here as completion tokens
    per second that a request was under way, which leaves the pauses between requests out.
    """
    both = [(a, b) for a, b in pairs if a.error is None and b.error is None and a.last and b.last]
    columns: list[list[float]] = [
        [a.completion_tokens for a, _ in both],
        [(a.last or 0.0) - a.sent for a, _ in both],
        [b.completion_tokens for _, b in both],
        [(b.last or 0.0) - b.sent for _, b in both],
    ]
    return bootstrap(columns, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]))


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
