"""The gate's errors on pairs of drafts whose truth is known; `gate_table.py` prints them all."""

from __future__ import annotations

from math import sqrt

import pytest
from gate_table import (
    SETTINGS,
    SIZES,
    TENANTS,
    passes,
    passes_by_chance,
    refused,
    refused_by_domains,
    refused_for_one,
)

GATES = 100
MANY = 400  # at which an error twice the promised one is told from it


def bound(rate: float, gates: int = GATES) -> float:
    """No more than so many of the gates, by three standard deviations."""
    return gates * rate + 3 * sqrt(gates * rate * (1 - rate))


@pytest.mark.parametrize("size", [12, 24])
def test_without_a_margin_an_equal_draft_is_deployed_no_oftener_than_the_confidence_allows(size: int):
    assert passes_by_chance(size, MANY, SETTINGS["confidence"]) <= bound(1 - SETTINGS["confidence"], MANY)


def test_twice_the_promised_error_would_be_seen():
    twice = 2 * (1 - SETTINGS["confidence"])
    assert passes_by_chance(12, MANY, 1 - twice) > bound(twice / 2, MANY)


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
    assert refused(0.0, 4, GATES) <= bound(0.05)
    assert refused(0.0, 8, GATES) <= bound(0.05)
    assert refused(0.20, 4, GATES) > GATES / 2
    assert refused(0.20, 8, GATES) >= GATES - bound(0.10)
    assert refused(0.20, 24, GATES) >= GATES - bound(0.01)


@pytest.mark.parametrize("tenants", TENANTS)
def test_many_tenants_stop_no_good_draft_and_one_that_loses_much_stops_a_bad_one(tenants: int):
    """With the measured loss alone half of the drafts that gain 0.05 everywhere are refused for 12 tenants."""
    assert refused_by_domains(0.0, tenants, GATES) <= bound(0.05)
    assert refused_by_domains(0.05, tenants, GATES) <= bound(0.02)
    assert refused_for_one(0.30, 8, tenants, GATES) >= GATES - bound(0.05)
