"""The tables of docs/simulation.md, made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_machines import CASES, PLACES, Case

PAGE = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_answers_stand_in_the_docs(case: Case) -> None:
    assert case.row() in PAGE


@pytest.mark.parametrize("case", [one for one in PLACES if one.inventory != "8xH100"], ids=lambda case: case.title)
def test_the_places_of_a_trainer_stand_in_the_docs(case: Case) -> None:
    """Those of eight H100 take too long here; the script prints them all."""
    assert case.places() in PAGE
