"""The gate's errors on pairs of drafts whose truth is known; `gate_table.py` prints them all."""

from __future__ import annotations

from math import sqrt

import pytest
from gate_table import SETTINGS, SIZES, passes, refused

GATES = 100


def bound(rate: float) -> float:
    """No more than so many of GATES, by three standard deviations."""
    return GATES * rate + 3 * sqrt(GATES * rate * (1 - rate))


@pytest.mark.parametrize("size", SIZES)
def test_an_equal_draft_is_deployed_no_oftener_than_the_confidence_allows(size: int):
    assert max(passes("equal", size, GATES)) <= bound(1 - SETTINGS["confidence"])


@pytest.mark.parametrize("name", ["3 % worse", "broken"])
def test_a_worse_draft_is_hardly_ever_deployed(name: str):
    assert max(passes(name, 24, GATES)) <= bound(0.005)


def test_a_larger_gate_misses_fewer_improvements():
    found = [passes("10 % better", size, GATES)[0] for size in SIZES]
    assert found == sorted(found)
    assert found[-1] >= GATES - bound(0.05)


def test_labels_stop_a_draft_that_gains_on_one_domain_at_the_expense_of_others():
    plain, guarded = passes("overfitted to code", 48, GATES)
    assert plain > GATES / 2  # it is better on the whole: nothing but the labels tells
    assert guarded <= bound(0.05)
    assert passes("10 % better", 48, GATES)[1] >= GATES - bound(0.05)


def test_the_floor_seldom_stops_a_draft_that_has_forgotten_nothing_and_often_one_that_has():
    assert refused(0.0, 2, GATES) == 0  # too few to ask
    assert refused(0.0, 4, GATES) <= bound(0.10)
    assert refused(0.0, 8, GATES) <= bound(0.05)
    assert refused(0.20, 4, GATES) >= GATES - bound(0.10)
    assert refused(0.20, 8, GATES) >= GATES - bound(0.05)
