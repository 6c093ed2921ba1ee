from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.speculation import (
    Acceptance,
    Profile,
    SpeculationDecision,
    SpeculationRules,
    SpeculationState,
    choose,
    draft_changed,
    expected_length,
    expected_rest,
    expected_speedup,
    in_words,
    interpolate,
    rate_from_totals,
    verified,
)

RULES = SpeculationRules(most_steps=4)

# the embedded target on one core, fp32, packed weights: flat up to four tokens, then in proportion
FLAT = Profile(verify=((1, 0.032), (4, 0.030), (8, 0.036), (16, 0.070)), draft=((1, 0.006), (8, 0.012)))

seconds = st.floats(1e-4, 1.0)
rates = st.floats(0.0, 0.99)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Any measured times, noise included: they need not even rise."""
    sizes = sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=5)))
    batches = sorted(draw(st.sets(st.integers(1, 16), min_size=1, max_size=3)))
    return Profile(
        tuple((size, draw(seconds)) for size in sizes),
        tuple((batch, draw(seconds)) for batch in batches),
        draw(st.sampled_from([(), ((1, 0.004), (8, 0.02))])),
    )


def after(rounds: Sequence[tuple[Sequence[int], int]], rules: SpeculationRules = RULES) -> SpeculationState:
    state = SpeculationState.initial(rules, rules.most_steps)
    for accepted, steps in rounds:
        state = verified(state, rules, accepted, steps)
    return state


def settle(state: SpeculationState, profile: Profile, batch: int, rules: SpeculationRules = RULES) -> int:
    """γ in force after more rounds than any dwell."""
    for _ in range(3 * rules.dwell):
        state, _ = choose(state, rules, profile, batch)
    return state.steps


@given(rates, st.integers(0, 6))
def test_the_expected_length_is_the_geometric_sum(rate: float, steps: int):
    assert expected_length([rate] * steps) == pytest.approx((1 - rate ** (steps + 1)) / (1 - rate))


def test_the_expected_length_is_what_rounds_yield():
    chance, per_position = np.random.default_rng(0), [0.7, 0.5, 0.2]
    lengths = [
        1 + next((i for i, rate in enumerate(per_position) if chance.random() >= rate), 3) for _ in range(40_000)
    ]
    assert expected_length(per_position) == pytest.approx(np.mean(lengths), abs=0.02)


def test_the_speedup_is_the_formula():
    # E[ℓ] / (γ·D/T(b) + T(b(γ+1))/T(b)) with α = 0.5, γ = 3, b = 2
    expected = (1 + 0.5 + 0.25 + 0.125) / (3 * interpolate(FLAT.draft, 2) / 0.0314 + 0.036 / 0.0314)
    profile = Profile(((2, 0.0314), (8, 0.036)), FLAT.draft)
    assert expected_speedup(profile, [0.5] * 4, batch=2, steps=3) == pytest.approx(expected)
    assert expected_speedup(profile, [0.5] * 4, batch=2, steps=0) == 1
    # what is spent in plain rounds too makes speculation look better, never worse
    extra = Profile(profile.verify, profile.draft, extra=((1, 0.01),))
    assert expected_speedup(extra, [0.5] * 4, 2, 3) > expected


def test_between_and_beyond_the_measured_sizes():
    points = ((2, 1.0), (4, 3.0))
    assert [interpolate(points, size) for size in (1, 2, 3, 4, 8)] == [1.0, 1.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"verify": ()},
        {"draft": ()},
        {"verify": ((2, 1.0), (1, 1.0))},
        {"verify": ((1, 0.0),)},
        {"draft": ((1, -1.0),)},
        {"draft": ((1, float("nan")),)},
        {"extra": ((1, float("inf")),)},
    ],
)
def test_impossible_profiles(wrong: dict):
    with pytest.raises(ValueError, match="profile"):
        Profile(**{"verify": ((1, 1.0),), "draft": ((1, 1.0),), **wrong})


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_the_estimate_finds_the_rate_whatever_the_steps(rate: float, steps: int):
    """Counting proposals instead of judged ones would find less than the truth: what follows a miss is never judged."""
    chance = np.random.default_rng(1)
    accepted = np.minimum(chance.geometric(1 - rate, size=4000) - 1, steps)
    state = after([([int(k)], steps) for k in accepted], SpeculationRules(3, memory=1e9))
    found = state.acceptance.rates(prior=0.5)
    assert found == pytest.approx([rate] * 3, abs=0.04)  # positions beyond the steps as well
    assert sum(state.acceptance.accepted) == pytest.approx(accepted.sum(), rel=1e-4)
    assert rate_from_totals(accepted.sum(), len(accepted), steps) == pytest.approx(rate, abs=0.03)


def test_the_estimate_is_the_most_likely_rate():
    """Against the likelihood of the censored geometric distribution itself."""
    rounds = [(0, 3), (3, 3), (1, 3), (2, 2), (0, 1), (1, 1), (2, 3)]
    state = after([([accepted], steps) for accepted, steps in rounds], SpeculationRules(3, memory=1e12))
    grid = np.linspace(0.001, 0.999, 9999)
    likelihood = sum(k * np.log(grid) + (k < steps) * np.log(1 - grid) for k, steps in rounds)
    counts = state.acceptance
    assert sum(counts.accepted) / sum(counts.judged) == pytest.approx(grid[likelihood.argmax()], abs=1e-3)


@given(st.floats(0, 1), st.integers(1, 8))
def test_totals_give_back_the_rate(rate: float, steps: int):
    mean = expected_length([rate] * steps) - 1
    assert expected_length([rate_from_totals(mean * 50, 50, steps)] * steps) - 1 == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("totals", [(1, 0, 3), (7, 2, 3), (-1, 2, 3), (1, 2, 0)])
def test_impossible_totals(totals: tuple[float, float, int]):
    with pytest.raises(ValueError, match="proposals"):
        rate_from_totals(*totals)


def test_old_rounds_are_forgotten():
    state = after([([4, 4], 4)] * 2000)
    assert state.acceptance.rates(0.5)[0] > 0.95
    for _ in range(2000):
        state = verified(state, RULES, [0, 0], 4)
    assert state.acceptance.rates(0.5)[0] < 0.05
    assert max(state.acceptance.judged) <= RULES.memory + 1


@given(
    profiles(),
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4), st.integers(0, 4)), max_size=60),
    st.floats(0.0, 0.3),
    st.integers(0, 30),
)
def test_never_a_choice_that_is_expected_to_lose_more_than_the_margin(
    profile: Profile, rounds: list[tuple[int, int, int]], margin: float, dwell: int
):
    """Whatever was measured and accepted, and however the batch size jumps."""
    rules = SpeculationRules(4, margin=margin, dwell=dwell)
    state = SpeculationState.initial(rules, 4)
    for batch, accepted, _ in rounds:
        known = state.acceptance.rates(rules.prior)
        again = SpeculationState.from_json(json.loads(json.dumps(state.to_json())))
        assert again == state
        state, decision = choose(state, rules, profile, batch)
        assert choose(again, rules, profile, batch) == (state, decision)
        assert expected_speedup(profile, known, batch, state.steps) >= (1 - margin) * (1 - 1e-12)
        assert decision.probing == (decision.steps != state.steps)
        state = verified(state, rules, [min(accepted, decision.steps)] * batch, decision.steps)


@given(rates, rates, st.integers(1, 12), profiles())
def test_the_best_number_of_steps_rises_with_acceptance(one: float, other: float, batch: int, profile: Profile):
    # costs that rise with the steps, as real ones do
    times = np.maximum.accumulate([interpolate(profile.verify, size) for size in range(1, 65)])
    profile = Profile(tuple(enumerate(times.tolist(), start=1)), profile.draft)

    def best(rate: float) -> int:
        speedups = [expected_speedup(profile, [rate] * 4, batch, steps) for steps in range(5)]
        return max(range(5), key=lambda steps: (round(speedups[steps], 9), -steps))

    low, high = sorted((one, other))
    assert best(low) <= best(high)
    for steps in range(5):
        assert expected_speedup(profile, [low] * 4, batch, steps) <= expected_speedup(
            profile, [high] * 4, batch, steps
        ) * (1 + 1e-12)


@given(st.integers(1, 16))
def test_a_draft_that_costs_too_much_is_off(batch: int):
    costly = Profile(FLAT.verify, draft=((1, 10.0),))
    assert settle(after([([4] * batch, 4)] * 200), costly, batch) == 0


def test_good_drafts_propose_much_and_poor_ones_nothing():
    assert settle(after([([4], 4)] * 300), FLAT, batch=1) == 4
    assert settle(after([([0], 4)] * 300), FLAT, batch=1) == 0
    # the same acceptance pays at one request and not at eight, where verifying is no longer free
    fair = after([([k], 3) for k in (0, 1, 0, 2, 1, 0, 3, 0)] * 60)
    assert settle(fair, FLAT, batch=1) > settle(fair, FLAT, batch=8) == 0


def test_a_small_advantage_changes_nothing():
    """Speed-ups within the margin of each other do not make it go to and fro."""
    state, seen = after([([1], 2), ([0], 2)] * 300), set()
    profile = Profile(((1, 0.030), (2, 0.0432), (3, 0.0440)), ((1, 0.0005),))
    rules = SpeculationRules(2, margin=0.05)
    for steps in (0, 1, 2):
        begun = SpeculationState(steps, Acceptance(state.acceptance.judged[:2], state.acceptance.accepted[:2]))
        speedups = [expected_speedup(profile, begun.acceptance.rates(0.5), 1, n) for n in range(3)]
        assert max(speedups) < 1.05 * speedups[steps]
        seen.add(settle(begun, profile, 1, rules))
    assert seen == {0, 1, 2}


def test_a_choice_stays_for_its_dwell():
    state = SpeculationState.initial(RULES, 1)
    for _ in range(300):
        state = verified(state, RULES, [4], 4)
    kept = 0
    while True:
        state, decision = choose(state, RULES, FLAT, 1)
        if decision.changed:
            break
        kept += 1
    assert kept == RULES.dwell
    assert decision.steps == 4


def test_the_number_of_steps_is_explained_for_the_batch_it_is_for():
    dear = Profile(verify=((1, 1.0), (4, 2.0), (8, 4.0)), draft=((1, 0.25),))
    speed = "1 draft step promises 0.60 times the speed of plain decoding"
    words = f"{speed} at batch size 4, with 50 % of first proposals accepted"
    assert in_words(dear, [0.5, 0.5], 4, 1, 0.05) == words
    assert in_words(dear, [0.5, 0.5], 4, 2, 0.05).startswith("2 draft steps promise ")
    # in plain decoding: what the best of the others would bring
    assert in_words(dear, [0.5, 0.5], 4, 0, 0.05) == words
    cheap = Profile(verify=((1, 1.0), (8, 1.0)), draft=((1, 0.4),))
    assert in_words(cheap, [0.43], 1, 0, 0.05).endswith("of first proposals accepted; a change must bring 5 %")
    # a choice stays for its dwell, and what has been learned since the last one has changed nothing yet
    assert in_words(cheap, [0.48], 1, 0, 0.05).endswith("accepted; it is taken if the next rounds bear that out")


def test_probing_takes_its_share_of_plain_rounds():
    state, decisions = after([([0], 4)] * 300), []
    rules = SpeculationRules(4, probe_loss=1.0)
    for _ in range(641):
        state, decision = choose(state, rules, FLAT, 1)
        decisions.append(decision)
    probes = [decision for decision in decisions if decision.probing]
    assert len(probes) == 10
    assert all(decision.steps > 0 for decision in probes)
    assert {decision.steps for decision in decisions if not decision.probing} <= {0, 4}
    never = SpeculationRules(4, probe_share=0)
    for _ in range(200):
        state, decision = choose(state, never, FLAT, 1)
        assert decision == SpeculationDecision(0, False, False)


@pytest.mark.parametrize("draft_seconds", [0.006, 0.03])
def test_probes_of_a_plain_engine_cost_a_bounded_part_of_the_time(draft_seconds: float):
    profile = Profile(verify=((1, 0.03), (8, 0.03)), draft=((1, draft_seconds),))
    state, _ = choose(after([([0], 4)] * 3000), RULES, profile, 1)
    assert state.steps == 0
    took, probes = 0.0, 0
    for _ in range(6000):
        state, decision = choose(state, RULES, profile, 1)
        took += profile.round_seconds(1, decision.steps)
        probes += decision.probing
    assert probes >= 10
    assert took <= 6000 * 0.03 * (1 + 1.01 * RULES.probe_loss)


def test_a_draft_at_work_is_compared_with_every_other_number_of_steps():
    state, tried = after([([4], 4)] * 300), []
    for _ in range(64 * 8):
        state, decision = choose(state, RULES, FLAT, 1)
        assert state.steps == 4
        tried += [decision.steps] if decision.probing else []
    assert sorted(tried) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_probing_finds_out_that_the_traffic_has_become_easy():
    state, rounds = after([([0], 4)] * 300), 0
    while state.steps == 0 or rounds == 0:
        state, decision = choose(state, RULES, FLAT, 1)
        if decision.steps:
            state = verified(state, RULES, [decision.steps], decision.steps)
        rounds += 1
    assert 64 < rounds < 64 * RULES.memory


def test_another_draft_is_given_a_chance_at_once():
    state = after([([0], 4)] * 300)
    assert settle(state, FLAT, 1) == 0
    assert settle(draft_changed(state, RULES), FLAT, 1) > 0


def test_a_new_draft_that_is_never_right_is_soon_known():
    """Plain decoding is chosen at once, and the trial ends after its number of proposals, an eighth of the rounds."""
    rules = SpeculationRules(most_steps=3, trial=100)
    state, rounds, probes = draft_changed(after([], rules), rules), 0, 0
    while state.trial:
        state, decision = choose(state, rules, FLAT, 2)
        state = verified(state, rules, [0, 0] if decision.steps else [], decision.steps)
        rounds, probes = rounds + 1, probes + decision.probing
    assert state.steps == 0
    assert probes * 7 <= rounds <= 400
    plain = [choose(state, rules, FLAT, 2)]
    for _ in range(200):
        plain.append(choose(plain[-1][0], rules, FLAT, 2))
    assert 0 < sum(decision.probing for _, decision in plain) <= 200 * rules.probe_share + 1


def test_a_new_draft_at_work_is_not_probed_more_than_ever():
    rules = SpeculationRules(most_steps=3)
    state = draft_changed(after([((3, 3), 3)] * 50, rules), rules)
    probes = 0
    for _ in range(128):
        state, decision = choose(state, rules, FLAT, 2)
        state = verified(state, rules, [decision.steps] * 2, decision.steps)
        probes += decision.probing
    assert probes == 2


@given(rates=st.lists(rates, min_size=1, max_size=6), steps=st.integers(0, 6))
def test_the_rest_completes_the_expected_length(rates: list[float], steps: int):
    steps = min(steps, len(rates))
    reached = float(np.prod(rates[:steps]))
    whole = expected_length(rates[:steps]) + reached * expected_rest(rates, steps)
    assert whole == pytest.approx(expected_length(rates))
