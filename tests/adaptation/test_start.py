from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.adaptation.gate import GateDecision
from tide_cli.adaptation.start import worth_starting_from


def gate(gain: float, lower: float | None) -> GateDecision:
    return GateDecision(False, 1.5 + gain, 1.5, gain, lower, 12, "not above the margin")


@pytest.mark.parametrize(
    ("gates", "version"),
    [
        ({}, None),
        ({3: gate(0.1, -0.05)}, 3),  # a standard error is about 0.08
        ({3: gate(0.1, -0.15)}, None),
        ({3: gate(0.1, None)}, None),  # too few samples
        ({3: gate(-0.1, -0.1)}, None),
        ({3: gate(0.0, 0.0)}, None),  # the same weights
        ({3: gate(0.1, 0.01), 5: gate(0.2, 0.0), 7: gate(0.4, -0.5)}, 5),
    ],
)
def test_a_start_is_better_by_more_than_noise(gates: dict[int, GateDecision], version: int | None) -> None:
    assert worth_starting_from(gates) == version


@given(st.dictionaries(st.integers(0, 50), st.tuples(st.floats(-1, 1), st.floats(0, 1))))
def test_no_worse_version_is_a_start(figures: dict[int, tuple[float, float]]) -> None:
    gates = {version: gate(gain, gain - off) for version, (gain, off) in figures.items()}
    chosen = worth_starting_from(gates)
    assert chosen is None or gates[chosen].gain > 0
