"""The arithmetic, on answers that were written down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.bench.client import Answer
from tide_cli.bench.figures import (
    acceptance_by_position,
    acceptance_length,
    acceptance_rate,
    bands,
    inter_token,
    length_interval,
    output_rate,
    paired_ratio,
    pass_figures,
    percentile,
    rate_ratio_interval,
    summarise,
)
from tide_cli.bench.requests import Request

REQUEST = Request(({"role": "user", "content": "Hello"},), 64)


def answer(
    sent: float,
    times: list[float],
    *,
    prompt: int = 10,
    steps: int | None = None,
    histogram: tuple[int, ...] = (),
    error: str | None = None,
    timed_out: bool = False,
) -> Answer:
    return Answer(
        REQUEST,
        sent,
        times[0] if times else None,
        times[-1] if times else None,
        tuple(times),
        prompt,
        len(times),
        steps,
        "",
        error,
        None if steps is None else 3 * steps,
        histogram,
        timed_out,
    )


# the first: three arrivals of 1, 2 and 3 tokens after 0.5 s; the second: two tokens, one by one
RECORDED = [
    answer(100.0, [100.5, 100.7, 100.7, 101.0, 101.0, 101.0], steps=3, histogram=(1, 1, 1)),
    answer(100.0, [101.0, 102.0], prompt=300, steps=2, histogram=(2,)),
]
FAILED = answer(100.0, [100.2], error="no whole answer within 9 s", timed_out=True)


def test_percentiles_are_linear() -> None:
    assert percentile([1, 2, 3, 4, 5], 50) == 3
    assert percentile([10, 20], 95) == pytest.approx(19.5)
    assert percentile([], 50) is None


def test_a_gap_is_shared_among_the_tokens_that_came_together() -> None:
    assert inter_token(RECORDED[:1]) == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1])
    assert inter_token(RECORDED) == pytest.approx([0.1] * 5 + [1.0])
    assert inter_token([answer(0, [1.0, 1.0])]) == []  # everything came at once


def test_a_pass() -> None:
    figures = pass_figures(RECORDED)
    assert figures["seconds"] == pytest.approx(2.0)
    assert figures["output_tok_s"] == pytest.approx(4.0)
    assert figures["requests_s"] == pytest.approx(1.0)
    assert figures["ttft_p50_ms"] == pytest.approx(750)
    assert figures["ttft_p95_ms"] == pytest.approx(975)
    assert figures["e2e_p50_ms"] == pytest.approx(1500)
    assert figures["itl_p50_ms"] == pytest.approx(100)
    assert figures["itl_p99_ms"] == pytest.approx(100 + 900 * 0.95)
    assert figures["gap_max_ms"] == pytest.approx(1000)
    assert figures["acceptance_length"] == pytest.approx(8 / 5)
    assert figures["acceptance_rate"] == pytest.approx(3 / 15)
    assert figures["acceptance_by_position"] == pytest.approx([2 / 5, 1 / 5])
    assert (figures["prompt_tokens"], figures["output_tokens"]) == (310, 8)


def test_failures_count_as_failures_and_as_nothing_else() -> None:
    figures = pass_figures([*RECORDED, FAILED])
    assert (figures["requests"], figures["errors"], figures["timeouts"]) == (3, 1, 1)
    assert {name: value for name, value in figures.items() if name not in ("requests", "errors", "timeouts")} == {
        name: value for name, value in pass_figures(RECORDED).items() if name not in ("requests", "errors", "timeouts")
    }
    nothing = pass_figures([FAILED])
    assert nothing["output_tok_s"] is nothing["ttft_p50_ms"] is nothing["acceptance_length"] is None
    assert nothing["acceptance_by_position"] == []


def test_plain_decoding_has_no_acceptance() -> None:
    plain = [answer(0, [1.0, 2.0])]
    assert acceptance_length(plain) is acceptance_rate(plain) is None
    assert acceptance_by_position(plain) == []
    assert output_rate(plain) == 1.0


def test_bands_hold_each_answer_once() -> None:
    found = bands(RECORDED, lambda one: one.prompt_tokens, (64, 256))
    assert [(band["from"], band["to"], band["requests"]) for band in found] == [(0, 64, 1), (256, None, 1)]
    assert bands([FAILED], lambda one: one.prompt_tokens, (64,)) == []
    on_the_edge = bands([answer(0, [1.0], prompt=64)], lambda one: one.prompt_tokens, (64,))
    assert [(band["from"], band["to"]) for band in on_the_edge] == [(64, None)]


@given(st.lists(st.integers(0, 9000), min_size=1, max_size=20))
def test_no_length_falls_between_bands(lengths: list[int]) -> None:
    found = bands([answer(0, [1.0], prompt=n) for n in lengths], lambda one: one.prompt_tokens, (64, 256, 1024))
    assert sum(band["requests"] for band in found) == len(lengths)


def test_an_interval_holds_the_value_and_narrows_with_more() -> None:
    rng = np.random.default_rng(1)

    def width(count: int) -> float:
        steps = rng.integers(1, 9, count)
        answers = [answer(0, [1.0] * 24, steps=int(n)) for n in steps]
        low, high = length_interval([answers]) or (0, 0)
        assert low < 24 / steps.mean() < high
        return high - low

    assert width(400) < width(25) / 2


def test_one_request_has_no_interval() -> None:
    assert length_interval([RECORDED[:1]]) is None
    assert length_interval([RECORDED[:1]] * 3) is None
    assert length_interval([]) is length_interval([[FAILED, FAILED]]) is None
    assert length_interval([RECORDED]) == pytest.approx((1.0, 2.0))


def test_the_same_answers_in_further_rounds_say_nothing_new() -> None:
    answers = [answer(0, [1.0] * 24, steps=n) for n in (3, 4, 6, 8, 12)]
    low, high = length_interval([answers]) or (0, 0)
    again = length_interval([answers] * 30) or (0, 0)
    assert again[1] - again[0] > 0.8 * (high - low)


def test_a_ratio_of_rates_is_paired_by_request() -> None:
    # theirs takes twice as long for each request: the interval is a point, though the requests differ much
    ours = [answer(0, [1.0 * n]) for n in (1, 5, 30)]
    theirs = [answer(0, [2.0 * n]) for n in (1, 5, 30)]
    pairs = list(zip(ours, theirs, strict=True))
    assert rate_ratio_interval([pairs, pairs], 2.0) == pytest.approx((2.0, 2.0))
    assert rate_ratio_interval([pairs], 2.0) is None  # nothing is known of other rounds
    assert rate_ratio_interval([[(ours[0], FAILED)]] * 2, None) is None


@pytest.mark.parametrize("rounds", [3, 10])
def test_drift_between_passes_is_seldom_taken_for_a_difference(rounds: int) -> None:
    """Two equal sides, each pass a tenth faster or slower as a whole: 5 % of the intervals may leave 1 out."""
    rng = np.random.default_rng(0)
    tokens = [1.0, 2.0, 4.0, 8.0]
    mistaken = 0
    for _ in range(60):
        drifts = rng.lognormal(0, 0.1, (rounds, 2))
        pairs = [[(answer(0, [a * n]), answer(0, [b * n])) for n in tokens] for a, b in drifts]
        ratio = float(np.median(drifts[:, 1] / drifts[:, 0]))
        low, high = rate_ratio_interval(pairs, ratio) or (0.0, 0.0)
        assert low <= ratio <= high
        mistaken += not low <= 1.0 <= high
    assert mistaken <= 7


def test_ratios_are_taken_round_by_round() -> None:
    assert paired_ratio([2.0, 20.0, 3.0], [1.0, 10.0, 1.0]) == {"median": 2.0, "min": 2.0, "max": 3.0, "rounds": 3}
    assert paired_ratio([None, 4.0], [1.0, 2.0]) == {"median": 2.0, "min": 2.0, "max": 2.0, "rounds": 1}
    assert paired_ratio([None], [1.0]) is None


def test_a_summary_of_nothing() -> None:
    assert summarise([])["requests"] == 0
    assert pass_figures([])["output_tok_s"] is None
