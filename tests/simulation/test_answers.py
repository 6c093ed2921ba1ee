"""The table of docs/simulation.md, made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_machines import CASES, Case

PAGE = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_answers_stand_in_the_docs(case: Case) -> None:
    assert case.row() in PAGE
