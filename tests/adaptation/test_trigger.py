from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.trigger import (
    TriggerRules,
    TriggerState,
    cycle_barren,
    cycle_began,
    cycle_cut,
    cycle_over,
    cycle_published,
    drifted,
    is_undecided,
    new_tokens,
    should_train,
    taken_back,
)

RULES = TriggerRules(6000, seconds=600, least_tokens=500, most_patience=8)
amounts = st.integers(0, 10**6)


def ask(state: TriggerState, total: int, now: float = 0.0, rules: TriggerRules = RULES, **asked: int) -> str | None:
    """The reason to train, or None."""
    decision = should_train(state, rules, total_tokens=total, now=now, **asked)
    assert decision.reason
    return decision.reason if decision.train else None


@given(amounts, st.integers(1, 10**6), st.booleans(), st.booleans())
def test_enough_tokens_or_a_request_start_one_cycle_at_a_time(new: int, tokens: int, running: bool, requested: bool):
    decision = ask(TriggerState(), new, rules=TriggerRules(tokens), running=running, requested=requested)
    assert (decision is not None) == (not running and (requested or new >= tokens))


def test_reasons_name_the_figures():
    def reason(total: int, **asked: bool) -> str:
        return should_train(TriggerState(), TriggerRules(6000), total_tokens=total, now=0.0, **asked).reason

    assert reason(500) == "500 of 6,000 new tokens stored"
    assert reason(6001) == "6,001 new tokens stored, 6,000 start a cycle"
    assert "running" in reason(6001, running=True)
    assert "asked for" in reason(0, requested=True)


def test_time_alone_starts_nothing():
    assert ask(TriggerState(), 499, now=10_000) is None
    assert ask(TriggerState(), 500, now=599) is None
    assert "no cycle has begun for 600 s, 500 new" in ask(TriggerState(), 500, now=600)
    assert ask(TriggerState(), 500, now=10_000, rules=TriggerRules(6000)) is None
    later = cycle_began(TriggerState(), total_tokens=500, now=600)
    assert ask(later, 1100, now=1100) is None
    assert ask(later, 1100, now=1200)


def test_no_cycle_begins_by_itself_whose_draft_could_not_be_judged():
    rules = TriggerRules(6000, seconds=600, held_out=4)
    drift, cut = drifted(TriggerState(), "acceptance has fallen"), cycle_cut(TriggerState())
    for state in (TriggerState(), drift, cut):
        assert ask(state, 9000, rules=rules, held_out=3) is None
        assert ask(state, 9000, rules=rules, held_out=4)
        assert ask(state, 9000, rules=rules)  # not known
        assert ask(state, 9000, rules=rules, held_out=0, requested=True)
    waits = should_train(TriggerState(), rules, total_tokens=9000, now=0, held_out=3).reason
    assert waits == "3 of 4 held-out samples that the gate needs"


def test_drift_starts_a_cycle_as_soon_as_there_is_something_to_train_on():
    state = drifted(TriggerState(barren=7), "acceptance has fallen")
    assert ask(state, 499) is None
    assert ask(state, 500) == "acceptance has fallen; 500 new tokens stored"
    assert ask(cycle_began(state, total_tokens=500, now=0), 1100) is None


def test_a_draft_at_its_ceiling_is_trained_ever_less_often():
    """An hour a day of traffic would else burn the trainer's core for ever."""
    state, total, cycles = TriggerState(), 0, []
    for total in range(0, 600_000, 1000):
        if ask(state, total, rules=TriggerRules(6000, most_patience=8)):
            cycles.append(total - state.trained_at)
            state = cycle_barren(cycle_began(state, total_tokens=total, now=0))
    assert cycles[:9] == [6000 * (1 + k) for k in range(8)] + [48_000]
    assert set(cycles[9:]) == {48_000}
    state = cycle_published(state, 1)
    assert ask(state, state.trained_at + 6000)


def test_a_draft_that_passes_the_gate_and_fails_live_time_and_again_is_trained_ever_less_often():
    state, cycles, version = TriggerState(), [], 0
    for total in range(0, 600_000, 1000):
        if ask(state, total):
            version += 1
            cycles.append(total - state.trained_at)
            state = cycle_published(cycle_began(state, total_tokens=total, now=0), version)
            state = taken_back(taken_back(state, version), version)  # once is enough
    assert cycles[:9] == [6000 * (1 + k) for k in range(8)] + [48_000]
    assert set(cycles[9:]) == {48_000}


@pytest.mark.parametrize(
    ("gain", "lower_bound", "undecided"),
    [
        (0.06, -0.01, True),
        (0.06, 0.0, True),
        (0.06, 0.01, False),
        (0.02, -0.01, False),
        (-0.1, -0.2, False),
        (0.3, 0.2, False),
        (None, 0, False),
    ],
)
def test_a_gain_that_too_few_samples_leave_open_is_no_barren_cycle(
    gain: float | None, lower_bound: float, undecided: bool
) -> None:
    """Unlike one that is sure, and was refused by a floor."""
    rules = TriggerRules(6000, margin=0.02)
    assert is_undecided(rules, gain=gain, lower_bound=lower_bound) == undecided
    assert not is_undecided(TriggerRules(6000), gain=gain, lower_bound=lower_bound)


def test_only_a_version_that_a_cycle_has_just_brought_counts_against_cycles():
    state = cycle_published(TriggerState(barren=3), 7)
    assert taken_back(state, 6) == state
    assert taken_back(cycle_barren(state), 7).barren == 5
    assert taken_back(drifted(state, "acceptance has fallen"), 7).barren == 1
    assert taken_back(cycle_published(state, 8), 7).barren == 0


def test_a_refusal_right_after_a_shift_makes_nothing_slower():
    """Neither that of the cycle during which acceptance fell, nor that of the one which the fall began."""
    running = cycle_began(TriggerState(barren=2), total_tokens=6000, now=0)
    refused = cycle_barren(drifted(running, "acceptance has fallen"))
    assert ask(refused, 6500) == "acceptance has fallen; 500 new tokens stored"
    refused = cycle_barren(cycle_began(refused, total_tokens=6500, now=0))
    assert ask(refused, 12_499) is None
    assert ask(refused, 12_500) == "6,000 new tokens stored, 6,000 start a cycle"
    refused = cycle_barren(cycle_began(refused, total_tokens=12_500, now=0))
    assert ask(refused, 18_500) is None  # by now there was enough to learn from
    assert ask(refused, 24_500)


def test_a_cycle_that_was_cut_short_is_taken_up_again_at_once():
    running = cycle_began(drifted(TriggerState(barren=3), "acceptance has fallen"), total_tokens=6000, now=0)
    cut = cycle_cut(running)
    assert ask(cut, 6010) == "going on with the cycle that was cut short; 10 new tokens stored since"
    again = cycle_began(cut, total_tokens=6010, now=0)
    assert ask(again, 6510) is None
    assert cycle_barren(again).barren == 0  # as if it had not been cut


def test_patience_holds_for_time_as_well():
    state = TriggerState(barren=1)
    assert ask(state, 1000, now=1199) is None
    assert ask(state, 999, now=1200) is None
    assert ask(state, 1000, now=1200)
    waiting = should_train(TriggerState(barren=3), RULES, total_tokens=100, now=0).reason
    assert waiting == "100 of 24,000 new tokens stored (the last 3 cycles brought nothing)"


@given(amounts, amounts)
def test_an_emptied_spool_starts_at_nothing(trained_at: int, total: int):
    expected = total - trained_at if total >= trained_at else total
    assert new_tokens(TriggerState(trained_at=trained_at), total) == expected >= 0


@given(
    st.builds(
        TriggerState,
        amounts,
        st.floats(0, 1e9),
        st.integers(0, 99),
        st.none() | st.text(),
        st.booleans(),
        st.booleans(),
        st.none() | st.floats(0, 1e9),
        st.none() | st.integers(0, 99),
        st.integers(0, 99),
    ),
    amounts,
)
def test_the_state_survives_json(state: TriggerState, total: int):
    again = TriggerState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert ask(again, total, now=1e8) == ask(state, total, now=1e8)


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=20), st.floats(0.01, 1))
def test_cycles_take_their_part_of_the_time_at_most(lengths: list[float], share: float):
    """However much is stored, and whatever has changed."""
    rules, state, now, trained = TriggerRules(1, most_share=share), TriggerState(), 0.0, 0.0
    for number, length in enumerate(lengths, 1):
        if state.rests_until is not None:
            state = drifted(state, "acceptance has fallen")
            assert share == 1 or ask(state, 9 * number, now - 0.5, rules) is None or state.rests_until <= now - 0.5
            assert ask(state, 9 * number, now, rules, requested=True)
            now = max(now, state.rests_until)
        assert trained <= share * now * (1 + 1e-9) + 1e-6
        assert ask(state, 9 * number, now, rules)
        state = cycle_began(state, total_tokens=9 * number - 1, now=now)
        now, trained = now + length, trained + length
        state = cycle_over(state, rules, now=now)


def test_a_rest_says_how_long():
    state = cycle_over(cycle_began(TriggerState(), total_tokens=0, now=100), TriggerRules(10, most_share=0.1), now=190)
    reason = should_train(state, TriggerRules(10, most_share=0.1), total_tokens=50, now=400).reason
    assert reason == "for 600 s no cycle begins: they take 10 % of the time at most; 50 new tokens stored"
