from __future__ import annotations

import json
from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import request

from tide_cli.adaptation.lengths import Lengths, student_quantile
from tide_cli.adaptation.rollback import RollbackDecision, RollbackRules, Watch, is_hopeless, observe

RULES = RollbackRules()


def history(chance: np.random.Generator, length: float, requests: int = 200) -> Lengths:
    lengths = Lengths()
    for _ in range(requests):
        lengths = lengths.add(*request(chance, length))
    return lengths


def verdict(watch: Watch, chance: np.random.Generator, length: float) -> tuple[str, float]:
    """How a watch ends on requests at this acceptance length, and after how many tokens."""
    decision = RollbackDecision("watching", "")
    while decision.verdict == "watching":
        tokens, steps = request(chance, length)
        watch, decision = observe(watch, RULES, tokens=tokens, steps=steps)
    return decision.verdict, watch.live.tokens


def watches(chance: np.random.Generator, forecast: float | None, before: float, count: int) -> list[Watch]:
    return [Watch(8, 7, forecast, before, history(chance, before)) for _ in range(count)]


def test_a_version_that_keeps_its_promise_is_hardly_ever_taken_back():
    chance = np.random.default_rng(1)
    # as good as the old one and as forecast: the worst case for a false alarm, once the margin is used up
    ends = [verdict(watch, chance, 1.55 - RULES.margin)[0] for watch in watches(chance, 1.55, 1.55, 100)]
    assert ends.count("rolled_back") <= 5 + 3 * sqrt(5)  # 5 % of 100, and three standard deviations
    ends = [verdict(watch, chance, 1.75)[0] for watch in watches(chance, 1.77, 1.55, 30)]
    assert ends == ["trusted"] * 30


@pytest.mark.parametrize(("length", "within"), [(1.25, 8_000), (1.40, 32_000)])
def test_a_version_that_is_worse_is_taken_back(length: float, within: int):
    chance = np.random.default_rng(2)
    ends = [verdict(watch, chance, length) for watch in watches(chance, 1.77, 1.55, 30)]
    assert [end for end, _ in ends] == ["rolled_back"] * 30
    assert np.median([tokens for _, tokens in ends]) <= within


def test_one_reference_alone_takes_nothing_back():
    chance = np.random.default_rng(3)
    # below the forecast, yet above the version before
    assert verdict(watches(chance, 1.90, 1.45, 1)[0], chance, 1.60)[0] == "trusted"
    # below the version before, as forecast: the traffic has become harder meanwhile
    assert verdict(watches(chance, 1.30, 1.77, 1)[0], chance, 1.30)[0] == "trusted"


def test_the_gates_figure_stands_in_for_a_version_that_was_not_seen_live():
    chance = np.random.default_rng(4)
    watch = Watch(1, 0, forecast=1.6, expected_before=1.4)
    assert verdict(watch, chance, 1.15)[0] == "rolled_back"
    assert verdict(watch, chance, 1.45)[0] == "trusted"
    assert verdict(Watch(1, 0, None, None), chance, 1.01)[0] == "trusted"  # nothing to compare with


@pytest.mark.parametrize(("requests", "hopeless"), [(1, False), (7, False), (8, True)])
def test_too_few_requests_of_the_version_before_make_no_draft_hopeless(requests: int, hopeless: bool):
    before, live = Lengths(), Lengths().add(1750, 1000)
    for _ in range(requests):
        before = before.add(60, 12)
    assert is_hopeless(Watch(5, 4, 2.10, 2.05, before, live), RULES) == hopeless
    assert is_hopeless(Watch(5, 4, 2.10, 2.05, before, Lengths().add(1100, 1000)), RULES)


def test_words_and_figures():
    watch = Watch(8, 7, 1.75, 1.5, replace(Lengths()))
    for _ in range(30):
        watch, decision = observe(watch, RULES, tokens=100, steps=100)
        if decision.verdict != "watching":
            break
    assert decision.verdict == "rolled_back"
    assert watch.live.count == RULES.observations
    assert decision.reason == (
        "acceptance length 1.000 on 800 tokens: at least 0.750 below the gate's forecast 1.750; at least 0.500 below "
        "the gate's figure for v0007, 1.500, and the margin is 0.05"
    )


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=80))
def test_a_watch_looks_seldom_and_can_be_replayed(observations: list[tuple[int, int]]):
    watch, looks = Watch(2, 1, 1.7, 1.5), 0
    for tokens, steps in observations:
        again = Watch.from_json(json.loads(json.dumps(watch.to_json())))
        assert again == watch
        before = watch.looked_at
        watch, decision = observe(watch, RULES, tokens=tokens, steps=steps)
        assert observe(again, RULES, tokens=tokens, steps=steps) == (watch, decision)
        looks += watch.looked_at > before
        if decision.verdict != "watching":
            assert watch.live.count >= RULES.observations
            break
    assert looks <= RULES.looks == 8


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(1, 500)), min_size=2, max_size=50))
def test_lengths_are_those_of_a_ratio_estimator(observations: list[tuple[float, float]]):
    lengths = Lengths()
    for tokens, steps in observations:
        lengths = lengths.add(tokens, steps)
    tokens, steps = np.array(observations).T
    ratio, count = tokens.sum() / steps.sum(), len(tokens)
    assert lengths.length == pytest.approx(ratio)
    residuals = ((tokens - ratio * steps) ** 2).sum() * count / (count - 1) / steps.sum() ** 2
    assert lengths.variance == pytest.approx(residuals, rel=1e-6, abs=1e-9)


def test_what_says_nothing_and_what_is_wrong():
    assert Lengths().add(5, 0) == Lengths()
    assert (Lengths().length, Lengths().add(5, 4).variance) == (0.0, inf)
    with pytest.raises(ValueError, match="-1"):
        Lengths().add(1, -1)


@pytest.mark.parametrize(("probability", "freedom"), [(0.95, 4), (0.05, 7), (0.99, 11), (0.992, 7)])
def test_students_quantiles(probability: float, freedom: int):
    stats = pytest.importorskip("scipy.stats")
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=0.02)
