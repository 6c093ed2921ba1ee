from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.telemetry.figures import EngineCounters, EngineFigures
from tide_cli.telemetry.load import Interval, LoadMeter, between, mean_acceptance, merged, no_load, quantile

FIGURES = EngineFigures(tok_s=1.0, accept_length=2.0, running=3, queued=1, kv_use=0.5)


def counters(output: float, first: dict[float, float] | None = None) -> EngineCounters:
    return EngineCounters(output, 2 * output, output, first or {}, {})


def test_rates_over_the_last_seconds_and_latencies_over_the_last_minute() -> None:
    meter = LoadMeter()
    assert meter.look(FIGURES, counters(1000), 0.0) is None  # what came before is not known
    assert meter.load(FIGURES)["output_tok_s"] is None
    for second in range(1, 101):
        tokens = 1000 + 10 * min(second, 95) + 30 * max(0, second - 95)
        waits = {0.1: second / 2, 1.0: second, math.inf: second}
        interval = meter.look(FIGURES, counters(tokens, waits), float(second))
    assert interval == Interval(1.0, 30, 60, 2.0, {(0.0, 0.1): 0.5, (0.1, 1.0): 0.5}, {})
    load = meter.load(FIGURES)
    assert (load["output_tok_s"], load["input_tok_s"]) == (30.0, 60.0)
    assert (load["running"], load["queued"], load["kv_use"], load["acceptance_length"]) == (3, 1, 0.5, 2.0)
    assert load["ttft_ms"] == {"p50": 100.0, "p95": 910.0}
    assert load["itl_ms"] == {"p50": None, "p95": None}
    assert load.keys() == no_load().keys()
    assert sum(merged(one.first_token for one in meter._intervals).values()) == 60


def test_an_engine_that_counts_from_nothing_again_gives_no_interval() -> None:
    meter = LoadMeter()
    meter.look(FIGURES, counters(100), 0.0)
    assert meter.look(FIGURES, counters(5), 1.0) is None
    assert meter.load(FIGURES)["output_tok_s"] is None
    assert meter.look(FIGURES, counters(7), 2.0).output == 2
    assert between(counters(1), counters(2), 0.0, None) is None


def test_an_interval_without_a_token_has_no_acceptance_length() -> None:
    assert between(counters(5), counters(5), 1.0, 1.7).acceptance_length is None


def test_acceptance_is_tokens_over_steps() -> None:
    intervals = [Interval(1, output=30, acceptance_length=3.0), Interval(1, output=10, acceptance_length=1.0)]
    assert mean_acceptance(intervals) == 2.0  # 40 tokens in 10 + 10 steps
    assert mean_acceptance([replace(intervals[0], acceptance_length=None)]) is None


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        ({}, 0.5, None),
        ({(0.0, 0.2): 4}, 0.5, 100.0),
        ({(0.0, 0.2): 1, (0.4, 0.8): 1}, 0.75, 600.0),
        ({(8.0, math.inf): 2}, 0.95, 8000.0),
    ],
)
def test_quantiles(buckets: dict[tuple[float, float], float], share: float, expected: float | None) -> None:
    assert quantile(buckets, share) == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_its_event(events: list[int], share: float) -> None:
    """Against the events themselves, and whether they came in one interval or in several."""
    buckets = {(bound - 1.0, float(bound)): float(events.count(bound)) for bound in set(events)}
    found = quantile(buckets, share)
    wanted = sorted(events)[math.ceil(share * len(events) - 1e-9) - 1]
    assert wanted - 1 <= found / 1000 <= wanted
    halves = [{ends: count / 2 for ends, count in buckets.items()}] * 2
    assert quantile(merged(halves), share) == found
