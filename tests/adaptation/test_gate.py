from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tide_cli.adaptation.gate import (
    MINIMUM_SAMPLES,
    RECENT_SAMPLES,
    GateDecision,
    Walk,
    acceptance_length,
    decide,
    domain_losses,
    gain_lower_bound,
    recent_count,
)

SETTINGS = {"margin": 0.02, "confidence": 0.95, "seed": 0, "floor": 0.10}


def walked(chance: np.random.Generator, samples: int, *skills: float, steps: int = 3) -> list[list[Walk]]:
    """The same samples walked with drafts of some skills: each sample has a length and a difficulty of its own."""
    walks: list[list[Walk]] = [[] for _ in skills]
    for _ in range(samples):
        tokens, ease = int(chance.integers(40, 200)), chance.normal(0, 0.12)
        for draft, skill in zip(walks, skills, strict=True):
            hit = np.clip(skill + ease, 0.02, 0.98)
            accepted = np.minimum(chance.geometric(1 - hit, size=tokens) - 1, steps) + 1
            rounds = int(np.searchsorted(accepted.cumsum(), tokens)) + 1
            draft.append(Walk(int(accepted[:rounds].sum()), rounds))
    return walks


walk_lists = st.lists(st.builds(Walk, st.integers(1, 200), st.integers(1, 100)), min_size=4, max_size=12)


@pytest.mark.parametrize(("samples", "margin"), [(6, 0.0), (24, 0.0), (24, 0.02)])
def test_equal_drafts_are_rarely_passed(samples: int, margin: float):
    chance, runs = np.random.default_rng(samples), 200
    passed = 0
    for run in range(runs):
        candidate, served = walked(chance, samples, 0.45, 0.45)
        passed += decide(candidate, served, **SETTINGS | {"margin": margin, "seed": run}).passed
    # 5 % of 200 are 10, with a standard deviation of 3.1: 19 is three of them above
    assert 0 < passed <= 19


@pytest.mark.parametrize("samples", [8, 24, 48])
def test_a_clear_gain_passes(samples: int):
    chance, runs = np.random.default_rng(samples), 60
    decisions = []
    for run in range(runs):
        candidate, served = walked(chance, samples, 0.60, 0.45)
        decisions.append(decide(candidate, served, **SETTINGS | {"seed": run}))
    assert sum(decision.passed for decision in decisions) >= runs - 1
    assert all(decision.gain > decision.lower_bound for decision in decisions)
    assert np.mean([decision.gain for decision in decisions]) > 0.25


def test_a_worse_draft_never_passes():
    chance = np.random.default_rng(1)
    for run in range(50):
        candidate, served = walked(chance, 24, 0.40, 0.45)
        assert not decide(candidate, served, **SETTINGS | {"seed": run}).passed


def test_figures_and_words():
    candidate, served = [Walk(30, 10)] * 8, [Walk(20, 10)] * 8
    decision = decide(candidate, served, **SETTINGS)
    assert decision == GateDecision(True, 3.0, 2.0, 1.0, 1.0, 8, decision.reason)
    assert decision.reason == "gain +1.000, at least +1.000 with confidence 0.95 on 8 samples: above the margin 0.02"
    assert json.loads(json.dumps(asdict(decision)))["lower_bound"] == 1.0
    refused = decide(served, served, **SETTINGS)
    assert (refused.passed, refused.gain, refused.lower_bound) == (False, 0.0, 0.0)
    assert "not above the margin" in refused.reason


def test_the_margin_itself_is_not_enough():
    candidate, served = [Walk(21, 10)] * 8, [Walk(20, 10)] * 8
    gain = 2.1 - 2.0
    assert not decide(candidate, served, **SETTINGS | {"margin": gain}).passed
    assert decide(candidate, served, **SETTINGS | {"margin": gain - 1e-9}).passed


def test_a_gain_above_the_margin_that_may_be_chance_is_not_enough():
    candidate, served = [Walk(30, 10)] * 5 + [Walk(11, 10)] * 3, [Walk(20, 10)] * 8
    refused = decide(candidate, served, **SETTINGS)
    assert refused.gain > SETTINGS["margin"]
    assert refused.lower_bound is not None
    assert refused.lower_bound < 0
    assert refused.reason.endswith("on 8 samples: above the margin 0.02, but it may be chance")
    surer = decide(candidate, served, **SETTINGS | {"confidence": 0.6})
    assert (surer.passed, surer.reason.endswith("above the margin 0.02")) == (True, True)


def test_a_sure_gain_that_is_larger_than_its_bound_says_passes():
    candidate, served = [Walk(22, 10)] * 6 + [Walk(20, 10)] * 2, [Walk(20, 10)] * 8
    decision = decide(candidate, served, **SETTINGS | {"margin": 0.1})
    assert decision.passed
    assert decision.lower_bound is not None
    assert 0 < decision.lower_bound < 0.1 < decision.gain


def test_forgetting_old_traffic_stops_a_candidate():
    candidate, served = [Walk(30, 10)] * 8, [Walk(20, 10)] * 8
    old = {"old_served": [Walk(20, 10)] * 4}
    kept = decide(candidate, served, old_candidate=[Walk(191, 100)] * 4, **SETTINGS | old)
    lost = decide(candidate, served, old_candidate=[Walk(189, 100)] * 4, **SETTINGS | old)
    assert (kept.passed, lost.passed) == (True, False)
    assert "loses 0.110 on 4 old samples" in lost.reason


@pytest.mark.parametrize("old", range(1, MINIMUM_SAMPLES))
def test_too_few_old_samples_stop_no_candidate(old: int):
    walks = {"old_candidate": [Walk(15, 10)] * old, "old_served": [Walk(20, 10)] * old}
    decision = decide([Walk(30, 10)] * 8, [Walk(20, 10)] * 8, **SETTINGS, **walks)
    assert decision.passed
    assert decision.reason.endswith(f"above the margin 0.02; the floor is not asked, with {old} of 4 old samples")


def test_a_domain_that_loses_too_much_stops_a_candidate():
    served = [Walk(20, 10)] * 20
    domains = ["code"] * 12 + ["sql"] * 4 + [None] * 4
    kept = [Walk(30, 10)] * 12 + [Walk(19, 10)] * 4 + [Walk(15, 10)] * 4  # what is not labelled belongs nowhere
    lost = [Walk(30, 10)] * 12 + [Walk(18, 10)] * 4 + [Walk(20, 10)] * 4
    assert decide(kept, served, domains=domains, domain_floor=0.15, **SETTINGS).passed
    refused = decide(lost, served, domains=domains, domain_floor=0.15, **SETTINGS)
    assert not refused.passed
    assert refused.reason.endswith("above the margin 0.02, but it loses 0.200 on sql, more than the 0.15 allowed")
    assert decide(lost, served, domains=domains, domain_floor=0.25, **SETTINGS).passed
    assert decide(lost, served, **SETTINGS).passed


def test_a_loss_that_may_be_chance_stops_no_candidate_and_is_told():
    served = [Walk(20, 10)] * 16
    scattered = [Walk(tokens, 10) for tokens in (14, 18, 24, 16)]  # 0.2 less on average
    candidate = [Walk(30, 10)] * 8 + scattered + [Walk(20, 10)] * 4
    decision = decide(candidate, served, domains=["code"] * 8 + ["sql"] * 4 + ["chat"] * 4, **SETTINGS)
    assert decision.passed
    assert decision.reason.endswith("; it loses 0.200 on sql, which may be chance")
    assert decision.domains["sql"] == pytest.approx(-0.2)
    old = {"old_candidate": scattered, "old_served": [Walk(20, 10)] * 4}
    assert decide([Walk(30, 10)] * 8, served[:8], **SETTINGS, **old).reason.endswith(
        "; it loses 0.200 on 4 old samples, which may be chance"
    )


def test_small_domains_are_judged_together():
    served = [Walk(20, 10)] * 9
    candidate = [Walk(30, 10)] * 4 + [Walk(18, 10)] * 3 + [Walk(16, 10)] * 2
    domains = ["code"] * 4 + ["sql"] * 3 + ["chat"] * 2
    losses = {name: loss.lost for name, loss in domain_losses(candidate, served, domains).items()}
    assert losses == {"code": pytest.approx(-1.0), "chat, sql": pytest.approx(0.28)}
    assert domain_losses(candidate[:7], served[:7], domains[:7]).keys() == {"code"}  # three are too few even so
    assert domain_losses(candidate, served, ()) == {}


@pytest.mark.parametrize("samples", range(MINIMUM_SAMPLES))
def test_too_few_samples_decide_nothing(samples: int):
    decision = decide([Walk(30, 10)] * samples, [Walk(20, 10)] * samples, **SETTINGS)
    assert (decision.passed, decision.lower_bound, decision.samples) == (False, None, samples)
    assert str(MINIMUM_SAMPLES) in decision.reason


def test_walks_that_are_not_pairs():
    for arguments in [([Walk(1, 1)], []), ([], [], [Walk(1, 1)], [])]:
        old = dict(zip(("old_candidate", "old_served"), arguments[2:], strict=False))
        with pytest.raises(ValueError, match="same samples"):
            decide(*arguments[:2], **SETTINGS, **old)
    with pytest.raises(ValueError, match="label"):
        decide([Walk(1, 1)], [Walk(1, 1)], domains=["a", "b"], **SETTINGS)
    for wrong in [(1, 0), (-1, 1)]:
        with pytest.raises(ValueError, match="walk"):
            Walk(*wrong)


@settings(max_examples=30, deadline=None)
@given(walk_lists, st.integers(0, 100), st.sampled_from([0.8, 0.9, 0.99]))
def test_the_bound_is_pure_and_between_the_extremes(candidate: list[Walk], seed: int, confidence: float):
    served = [Walk(walk.rounds, walk.rounds) for walk in candidate]  # acceptance length 1
    bound = gain_lower_bound(candidate, served, confidence=confidence, seed=seed)
    assert bound == gain_lower_bound(candidate, served, confidence=confidence, seed=seed)
    ratios = [walk.tokens / walk.rounds - 1 for walk in candidate]
    assert min(ratios) - 1e-9 <= bound <= max(ratios) + 1e-9
    assert bound <= acceptance_length(candidate) - 1 + 0.1 * (max(ratios) - min(ratios)) + 1e-9
    surer = gain_lower_bound(candidate, served, confidence=(1 + confidence) / 2, seed=seed)
    assert surer <= bound


@given(st.lists(st.floats(0, 2e9), max_size=60), st.floats(0, 2e9))
def test_the_newest_are_judged_on_and_more_where_they_are_few(times: list[float], since: float):
    created = sorted(times, reverse=True)
    count = recent_count(created, since)
    assert min(RECENT_SAMPLES, len(created)) <= count <= len(created)
    assert all(one < since for one in created[count:])
    if count > RECENT_SAMPLES:
        assert all(one >= since for one in created[:count])
