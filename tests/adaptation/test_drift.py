from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from drift_comparison import alarms, averages, delays, falling, false_alarms, mixed, recorded
from hypothesis import given
from hypothesis import strategies as st
from simulated import request

from tide_cli.adaptation.drift import DriftRules, DriftState, observe
from tide_cli.telemetry.history import History
from tide_cli.telemetry.load import Interval
from tide_cli.telemetry.rows import Row

RULES = DriftRules()
make = partial(averages, RULES)


def seen(length: float, steps: int, state: DriftState | None = None) -> DriftState:
    for _ in range(steps // 100):
        state, decision = observe(state or DriftState(), RULES, tokens=100 * length, steps=100)
        assert not decision.drifted
    return state


def test_steady_traffic_raises_hardly_an_alarm():
    chance = np.random.default_rng(1)
    # published in the docstring of drift.py: 0 at one level, 1 in mixed traffic, 4 in runs of five, per 10,000
    assert false_alarms(make, [request(chance, 1.77) for _ in range(5_000)]) <= 2
    assert false_alarms(make, mixed(chance, 5_000, 1)) <= 6
    assert false_alarms(make, mixed(chance, 5_000, 5)) <= 16


@pytest.mark.parametrize(("before", "after", "within"), [(1.77, 1.37, 40), (1.77, 1.44, 50), (1.77, 1.53, 100)])
def test_a_fall_is_noticed_within_some_dozens_of_requests(before: float, after: float, within: int):
    chance = np.random.default_rng(2)
    found = delays(make, [falling(chance, before, after) for _ in range(12)])
    assert median(found) <= within


@pytest.mark.parametrize("longer", [0.25, 3, 6])
@pytest.mark.parametrize("length", [1.37, 2.4])
def test_answers_of_any_length_raise_hardly_an_alarm(length: float, longer: float):
    """28, 330 and 660 tokens; counted whole, the longest raise about 60 in 10,000 at 2.4."""
    chance = np.random.default_rng(4)
    assert false_alarms(make, [request(chance, length, longer) for _ in range(5_000)]) <= 2


def test_long_answers_counted_whole_raise_many():
    chance = np.random.default_rng(4)
    whole = partial(averages, DriftRules(most_steps=inf, sureness=0))
    assert false_alarms(whole, [request(chance, 2.4, 6) for _ in range(5_000)]) >= 20


@pytest.mark.parametrize(("longer", "within"), [(1, 50), (3, 40), (6, 30)])
def test_a_fall_is_noticed_whatever_the_length_of_answers(longer: float, within: int):
    chance = np.random.default_rng(5)
    assert median(delays(make, [falling(chance, 2.4, 2.0, 0, longer) for _ in range(12)])) <= within


@given(st.floats(1, 4), st.integers(1, 99), st.floats(1, 50))
def test_beyond_most_steps_a_request_says_no_more(length: float, steps: int, longer: float):
    state = seen(2.0, 20_000)
    long, _ = observe(state, RULES, tokens=length * 100, steps=100)
    longest, _ = observe(state, RULES, tokens=length * 100 * longer, steps=100 * longer)
    assert longest.short == pytest.approx(long.short)
    shorter, _ = observe(state, RULES, tokens=length * steps, steps=steps)
    assert abs(shorter.short - 2.0) <= abs(long.short - 2.0) + 1e-9


def test_a_rise_is_no_drift():
    chance = np.random.default_rng(3)
    detector = make()
    assert not any(detector(*one) for one in falling(chance, 1.44, 1.77))


def test_both_averages_begin_anew_at_a_fall():
    state = seen(1.8, 20_000)
    while state.seen:
        state, decision = observe(state, RULES, tokens=140, steps=100)
    assert decision.drifted
    assert state == DriftState()
    assert "fallen by more than 0.1" in decision.reason


def test_nothing_is_decided_before_the_warm_up():
    state = DriftState()
    for _ in range(149):
        state, decision = observe(state, RULES, tokens=300 if state.seen < 5_000 else 100, steps=100)
        assert not decision.drifted
    state, decision = observe(state, RULES, tokens=100, steps=100)
    assert decision.drifted


@given(st.lists(st.tuples(st.floats(0, 4), st.integers(0, 400)), max_size=40), st.integers(2, 5))
def test_how_the_traffic_is_cut_does_not_matter(stretches: list[tuple[float, int]], pieces: int):
    """The averages of even traffic are the same in one observation as in several, and lie within what was seen."""
    rules = DriftRules(epsilon=9, most_steps=inf)
    whole = cut = DriftState()
    for length, steps in stretches:
        whole, _ = observe(whole, rules, tokens=length * steps, steps=steps)
        for _ in range(pieces):
            cut, _ = observe(cut, rules, tokens=length * steps / pieces, steps=steps / pieces)
    assert cut.seen == pytest.approx(whole.seen)
    lengths = [length for length, steps in stretches if steps]
    for state in (whole, cut):
        for average in (state.short, state.long):
            assert not lengths or min(lengths) - 1e-6 <= average <= max(lengths) + 1e-6
    assert cut.long == pytest.approx(whole.long, abs=0.05)


def test_the_state_survives_json_and_decides_the_same():
    state = seen(1.8, 20_000)
    again = DriftState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert observe(again, RULES, tokens=5, steps=4) == observe(state, RULES, tokens=5, steps=4)
    with pytest.raises(ValueError, match="observation"):
        observe(state, RULES, tokens=-1, steps=1)


def test_recorded_traffic_is_read_by_served_version(tmp_path: Path):
    """Of the stored requests, or of the history's seconds; a swap is no drift."""
    with closing(sqlite3.connect(tmp_path / "index.db")) as index:
        index.execute("create table samples (id, draft_version, verify_steps, accepted, domain)")
        rows = [(i, int(i >= 300), 100, 100 if i < 200 else 20 if i < 300 else 10, "") for i in range(1, 600)]
        index.executemany("insert into samples values (?, ?, ?, ?, ?)", rows)
        index.commit()
    stretches = recorded(tmp_path / "index.db")
    assert [len(stretch) for stretch in stretches] == [299, 300]
    assert stretches[0][0] == (200, 100)
    (found,) = alarms(make, stretches)
    assert 200 <= found < 300

    history, begun = History(tmp_path / "history.db", pytest.fail), int(time.time())
    for second in range(5):
        seen = Interval(1.0, 60.0, 0.0, 1.5) if second != 1 else Interval(1.0)
        history.add(Row(begun + second, seen, version=0 if second < 3 else 1))
    history.close()
    assert recorded(tmp_path / "history.db") == [[(60, 40), (60, 40)], [(60, 40), (60, 40)]]
