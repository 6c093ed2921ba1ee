"""The table of round times, its correction from live rounds, and its measurement."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from tide_cli.engine.plugin.profile import Conditions, Measurement, Profile, load_profile
from tide_cli.engine.plugin.round_times import RoundTimes

CONDITIONS = Conditions("some-target", "some processor x1", "float32", "0.5.23")
CELLS = {(batch, steps): batch * 0.01 + steps * 0.005 + 0.02 for batch in (1, 2, 4, 8) for steps in range(4)}


def ratio(times: RoundTimes, batch: int, steps: int) -> float:
    return times.round_seconds(batch, steps) / times.round_seconds(batch, 0)


def test_between_the_measured_batch_sizes_times_are_interpolated() -> None:
    times = RoundTimes(CELLS)
    assert times.round_seconds(4, 2) == CELLS[4, 2]
    assert CELLS[2, 1] < times.round_seconds(3, 1) < CELLS[4, 1]
    assert ratio(times, 32, 3) == pytest.approx(ratio(times, 8, 3))


@pytest.mark.parametrize("missing", [(1, 0), (8, 3), (2, 1)])
def test_a_table_with_holes_is_refused(missing: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not a whole table"):
        RoundTimes({key: value for key, value in CELLS.items() if key != missing})


def test_what_slows_all_rounds_down_changes_no_ratio() -> None:
    """A neighbour that doubles every round's time, from one round to the next, with a probe every 16 rounds."""
    times, noise = RoundTimes(CELLS), random.Random(1)
    before = {steps: ratio(times, 4, steps) for steps in range(4)}
    for i in range(4000):
        steps = 0 if i % 16 else 1 + i // 16 % 3
        slow = 2.0 if i // 500 % 2 else 1.0
        times.observe(4, steps, CELLS[4, steps] * slow * math.exp(noise.gauss(0, 0.05)))
    for steps in range(4):
        assert ratio(times, 4, steps) == pytest.approx(before[steps], rel=0.06)


def test_what_makes_one_number_of_steps_dearer_is_learned_from_its_probes() -> None:
    times, noise = RoundTimes(CELLS), random.Random(2)
    for i in range(2000):
        steps = 0 if i % 16 else 3
        dearer = 1.3 if steps else 1.0
        times.observe(2, steps, CELLS[2, steps] * dearer * math.exp(noise.gauss(0, 0.05)))
    assert ratio(times, 2, 3) == pytest.approx(1.3 * CELLS[2, 3] / CELLS[2, 0], rel=0.08)
    assert ratio(times, 8, 3) == pytest.approx(CELLS[8, 3] / CELLS[8, 0])


def test_the_cost_of_a_switch_is_no_cost_of_a_number_of_steps() -> None:
    """The first round after each switch takes 2 % longer, as it did when the table was measured."""
    switched = {key: 1.02 * seconds for key, seconds in CELLS.items()}
    for used in range(4):
        times, noise, last = RoundTimes(switched), random.Random(used), used
        others = [steps for steps in range(4) if steps != used]
        for i in range(20_000):
            steps = used if i % 64 else others[i // 64 % 3]
            seconds = CELLS[2, steps] * (1.02 if steps != last else 1.0) * math.exp(noise.gauss(0, 0.02))
            times.observe(2, steps, seconds)
            last = steps
        for steps in range(4):
            assert ratio(times, 2, steps) == pytest.approx(CELLS[2, steps] / CELLS[2, 0], rel=0.035)


def measured(most_steps: int = 3, pauses: bool = False) -> Profile | None:
    """A measurement at batch sizes 1, 2, 4 and 8, and two rounds at 3."""
    measurement = Measurement(most_steps)
    for batch, rounds in ((1, 40), (2, 40), (3, 2), (4, 40), (8, 40)):
        for i in range(rounds):
            steps = measurement.next_steps()
            seconds = 1.0 if pauses and i % 11 == 0 else batch * 0.01 + steps * 0.005 + 0.02
            measurement.add(batch, steps, seconds, {"verify": 0.01})
    return measurement.result(CONDITIONS, clock=lambda: 12.0)


@pytest.mark.parametrize("pauses", [False, True])
def test_a_measurement_is_medians_of_the_batch_sizes_seen_often_enough(pauses: bool) -> None:
    profile = measured(pauses=pauses)
    assert profile is not None
    assert profile.cells == pytest.approx(CELLS)
    assert profile.parts[4, 2] == {"verify": 0.01}


def test_a_measurement_without_rounds_has_no_result() -> None:
    assert Measurement(3).result(CONDITIONS) is None


def test_a_measurement_that_nobody_ends_is_overdue() -> None:
    measurement = Measurement(3)
    assert not measurement.overdue
    for _ in range(10_000):
        measurement.next_steps()
    assert measurement.overdue


def test_a_profile_is_kept_for_its_conditions(tmp_path) -> None:
    profile = measured()
    profile.save(tmp_path / "profiles")
    assert load_profile(tmp_path / "profiles", CONDITIONS, most_steps=3) == profile
    assert load_profile(tmp_path / "profiles", CONDITIONS, most_steps=4) is None
    other = Conditions("some-target", "some processor x2", "float32", "0.5.23")
    assert load_profile(tmp_path / "profiles", other, most_steps=3) is None


def test_figures_are_kept_of_as_many_steps_alone() -> None:
    few, many = measured(most_steps=1), measured(most_steps=3)
    assert few is not None
    assert many is not None
    lacks = replace(few, cells={key: seconds for key, seconds in few.cells.items() if key[0] == 4})
    assert lacks.over(many).kept == (1, 2, 8)
    assert {steps for _, steps in lacks.over(many).cells} == {0, 1}
    lacks = replace(many, cells={key: seconds for key, seconds in many.cells.items() if key[0] == 4})
    assert lacks.over(few) is lacks
    assert lacks.over(None) is lacks


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"rounds": [], "measured": 1, "conditions": {}}'])
def test_a_damaged_profile_is_as_good_as_none(tmp_path, content: str) -> None:
    CONDITIONS.file(tmp_path).write_text(content)
    assert load_profile(tmp_path, CONDITIONS, most_steps=3) is None
