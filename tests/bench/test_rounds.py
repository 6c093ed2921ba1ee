from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tide_cli.bench.rounds import Spread, in_turns, ratios


def test_a_spread() -> None:
    assert Spread.of([5]) == Spread(5, 5, 5)
    assert Spread.of([4, 1, 3, 2, 100]) == Spread(3, 2, 4)  # one slow round moves nothing
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


@given(st.lists(st.floats(0.1, 1e6), min_size=1))
def test_the_median_lies_between_the_quartiles(values: list[float]) -> None:
    spread = Spread.of(values)
    assert min(values) <= spread.low <= spread.median <= spread.high <= max(values)


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2, 20, 2], [1, 10, 1]) == Spread(2, 2, 2)
    with pytest.raises(ValueError, match="shorter"):
        ratios([1], [])


@pytest.mark.parametrize(("seconds", "least", "rounds"), [(0, 3, 3), (25, 1, 3), (0, 1, 1)])
def test_contestants_take_turns_and_nobody_is_always_first(seconds: float, least: int, rounds: int) -> None:
    now, calls = 0.0, []

    def contestant(name: str):
        def run() -> str:
            nonlocal now
            now += 5
            calls.append(name)
            return name.upper()

        return run

    found = list(
        in_turns({"a": contestant("a"), "b": contestant("b")}, seconds=seconds, least=least, clock=lambda: now)
    )
    assert found == [{"a": "A", "b": "B"}] * rounds
    assert calls == ["a", "b", "b", "a", "a", "b"][: 2 * rounds]
