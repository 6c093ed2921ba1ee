from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.early_stop import (
    FEWEST_SAMPLES,
    LOOK_SHARE,
    MOST_SAMPLES,
    best_look,
    looked_at,
    next_look,
    no_progress,
)

MANY = 10.0**9


@given(st.lists(st.integers(1, 2048), max_size=100), st.floats(0, MANY))
def test_a_cycle_keeps_most_of_its_new_samples_and_spends_most_of_its_time_on_them(
    tokens: list[int], expected: float
) -> None:
    count = looked_at(tokens, expected)
    assert count == 0 or FEWEST_SAMPLES <= count <= MOST_SAMPLES
    assert count <= len(tokens) / 4
    assert 4 * sum(tokens[:count]) <= LOOK_SHARE * expected or count == 0
    assert looked_at(tokens, 2 * expected) >= count


@pytest.mark.parametrize(
    ("new", "expected", "count"),
    [
        (31, MANY, 0),  # after a shift there are few
        (32, MANY, 8),
        (256, MANY, 16),
        (256, 16 * 100 * 80, 16),
        (256, 12 * 100 * 80, 12),
        (256, 8 * 100 * 80 - 1, 0),  # too slow for looks that could end it
        (256, 0.0, 0),
    ],
)
def test_so_many_new_samples_are_looked_at(new: int, expected: float, count: int) -> None:
    assert looked_at([100] * new, expected) == count


@given(st.integers(1, 10_000), st.lists(st.integers(1, 5000), max_size=300))
def test_looks_cost_a_twentieth_wherever_the_cycle_ends(rows: int, steps: list[int]) -> None:
    tokens = walked = 0
    for step in steps:
        tokens += step
        if tokens >= next_look(rows, walked):
            walked += 1 if walked else 2
        last = 1 if walked else 0  # at the weights of the last step
        assert (walked + last) * rows <= LOOK_SHARE * tokens * (1 + 1e-9)


@given(st.lists(st.floats(1, 5), min_size=1, max_size=12))
def test_a_cycle_ends_two_looks_after_its_best_one(lengths: list[float]) -> None:
    ended = next((n for n in range(1, len(lengths) + 1) if no_progress(lengths[:n])), None)
    seen = lengths[:ended]
    best = best_look(seen)
    assert seen[best] == max(seen)
    assert all(length < seen[best] for length in seen[:best])
    if ended is None:
        assert len(seen) - best <= 2
    else:
        assert len(seen) - best == 3
