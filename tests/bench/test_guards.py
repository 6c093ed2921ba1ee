"""Guards, on a recorded measurement with a planted regression."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import LOADS, plan, recorded, recorded_pass

from tide_cli.bench.guards import Finding, Guard, check_guards, judge, parse_guard
from tide_cli.bench.matrix_figures import COMPARED, GUARDED, figures
from tide_cli.bench.matrix_table import reading
from tide_cli.errors import UsageError

MEASURING = Path(__file__).parents[2] / "docs" / "measuring.md"


def findings(*texts: str, **steps: float) -> list[Finding]:
    found = figures(plan(*steps), recorded(steps))
    return judge([parse_guard(text) for text in texts], found["cells"], found["ratios"])


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("itl_p95<=1.05x", Guard("itl_p95<=1.05x", "itl_p95_ms", "<=", 1.05, True)),
        ("tok_s >= 1.0x", Guard("tok_s >= 1.0x", "output_tok_s", ">=", 1.0, True)),
        ("b:al>=1.1x a", Guard("b:al>=1.1x a", "acceptance_length", ">=", 1.1, True, "b", "a")),
        ("errors<1", Guard("errors<1", "errors", "<", 1.0, False)),
        ("error>=-.1", Guard("error>=-.1", "error", ">=", -0.1, False)),
        ("ttft_p95_ms<=.5", Guard("ttft_p95_ms<=.5", "ttft_p95_ms", "<=", 0.5, False)),
    ],
)
def test_what_a_guard_says(text: str, guard: Guard) -> None:
    assert parse_guard(text) == guard


@pytest.mark.parametrize(
    "text",
    ["", "tok_s", "tok_s=1", "tok_s>=x", "tok_s>=1y", "tok_s>=-1x", "tok_s>=--1", "a:b:tok_s>1", "tok_s>=1 static"],
)
def test_what_is_no_guard(text: str) -> None:
    with pytest.raises(UsageError, match="is not a guard"):
        parse_guard(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed>=1x", "there is no figure speed"),
        ("adapted:tok_s>=1x", "adapted is not measured"),
        ("tok_s>=1x adapted", "adapted is not measured"),
        ("plain:tok_s>=1x", "compares plain with itself"),
        ("errors<=1x", "errors has no ratio"),
        ("memory<=1.1x", "memory has no ratio"),
        ("al>=1x", "plain decoding has no acceptance_length"),
        ("kv_use_peak<=90", "kv_use_peak is a share from 0 to 1"),
        ("plain:al>=1", "plain decoding has no acceptance_length"),
    ],
)
def test_a_guard_that_nothing_can_answer_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_guards([parse_guard(text)], ("plain", "static"), GUARDED, COMPARED)
    check_guards([parse_guard("static:tok_s>=1x"), parse_guard("static:al>=1")], ("plain", "static"), GUARDED, COMPARED)


def test_every_figure_of_a_guard_is_explained_with_its_short_name() -> None:
    rows = [line.split("|") for line in MEASURING.read_text().splitlines() if line.startswith("| `")]
    told = {name.strip(" `") for row in rows for name in row[1].split(",")}
    short = {name.strip(" `") for row in rows for name in row[2].split(",")} - {""}
    assert told == set(GUARDED)
    assert short == {name for figure in GUARDED for name in parse_guard(f"{figure}<=1").names} - told


def test_a_planted_regression_is_caught_in_its_cell() -> None:
    """The adapted draft is made slower than plain decoding, and its gaps longer."""
    sound = findings("tok_s>=1.0x", "itl_p95<=1.05x", plain=0.2, static=0.15, adapted=0.1)
    assert [finding.met for finding in sound] == [True] * 8  # two modes under two loads, two guards
    assert all(" is met by " in finding.words() for finding in sound)
    planted = findings("tok_s>=1.0x", "itl_p95<=1.05x", plain=0.2, static=0.15, adapted=0.25)
    assert [finding.where for finding in planted if not finding.met] == [
        "adapted at concurrency 1 against plain",
        "adapted at concurrency 4 against plain",
    ] * 2
    assert planted[1].value == pytest.approx(0.8)
    assert planted[1].words() == "tok_s>=1.0x is not met by adapted at concurrency 1 against plain: 0.8"


def test_a_guard_may_name_both_sides() -> None:
    (first, second) = findings("adapted:tok_s>=1.1x static", plain=0.2, static=0.1, adapted=0.1)
    assert (first.met, second.met) == (False, False)
    assert first.value == pytest.approx(1.0)


def test_absolute_bounds_hold_for_every_mode_that_has_the_figure() -> None:
    assert [finding.met for finding in findings("itl_p95<=150", plain=0.2, static=0.05)] == [False, True] * 2
    assert [finding.where for finding in findings("al>=1.5", plain=0.2, static=0.05)] == [
        "static at concurrency 1",
        "static at concurrency 4",
    ]


def test_what_was_not_measured_is_not_met() -> None:
    cell = {"mode": "plain", "where": "plain at concurrency 1", "output_tok_s": None, "errors": 0}
    (finding,) = judge([parse_guard("tok_s>=1")], [cell], [])
    assert (finding.met, finding.value) == (False, None)
    assert "there is no such figure" in finding.words()


def test_a_ratio_has_both_directions() -> None:
    """One that nothing answers would hold whatever was measured."""
    for text, steps in (
        ("plain:tok_s>=99x static", ("plain", "static")),
        ("static:tok_s>=99x plain", ("static", "plain")),
    ):
        found = findings(text, **dict.fromkeys(steps, 0.1))
        assert [(one.met, one.value) for one in found] == [(False, pytest.approx(1.0))] * 2
    assert [one.where for one in findings("al>=1x static", plain=0.2, static=0.1, adapted=0.1)] == [
        "adapted at concurrency 1 against static",
        "adapted at concurrency 4 against static",
    ]


def test_a_guard_that_speaks_of_no_cell_is_not_met() -> None:
    for text in ("adapted:tok_s>=1x", "adapted:tok_s>=1", "tok_s>=1x adapted"):
        (finding,) = findings(text, plain=0.2, static=0.1)
        assert not finding.met
        assert finding.words() == f"{text} is not met by this measurement: there is no such figure"


def test_what_failed_keeps_a_guard_from_being_met() -> None:
    """Two rounds of three without an answer, and the third as good as ever."""
    asked = plan("plain", "static")
    passes = [
        recorded_pass(number, mode, LOADS[0], 0.1, failing=6 if number and mode == "static" else 0)
        for number in range(3)
        for mode in asked.modes
    ]
    measured = figures(asked, passes)

    def found(*texts: str) -> list[Finding]:
        return judge([parse_guard(text) for text in texts], measured["cells"], measured["ratios"])

    for text in ("static:tok_s>=0.5x plain", "plain:tok_s>=0.5x static", "static:itl_p95<=500", "tok_s>=0.5x"):
        (finding,) = found(text)
        assert not finding.met
        assert finding.words().endswith(", and 12 of 18 requests of static failed")
        assert found(text, "static:errors<=12")[0].met
        assert not found(text, "static:errors<=11")[0].met
        assert not found(text, "plain:errors<=12")[0].met
    assert [one.met for one in found("plain:tok_s>=1", "timeouts<=12")] == [True, True, True]
    (sentence,) = reading(measured)
    assert "over 1 round)" in sentence
    assert sentence.endswith("; 12 of 18 requests of static failed")


def test_the_policy_is_held_against_the_best_of_each_round() -> None:
    steps = {"plain": 0.2, "adapted": 0.1, "policy": 0.125}
    found = findings("tok_s>=0.97x best", **steps)
    assert [(one.met, one.value) for one in found] == [(False, pytest.approx(0.8))] * 2
    modes = ("plain", "adapted", "policy")
    check_guards([parse_guard("policy:tok_s>=0.97x best")], modes, GUARDED, COMPARED)
    for text in ("adapted:tok_s>=1x best", "itl_p95<=1x best"):
        with pytest.raises(UsageError, match="cannot be answered"):
            check_guards([parse_guard(text)], modes, GUARDED, COMPARED)
    with pytest.raises(UsageError, match="cannot be answered"):
        check_guards([parse_guard("tok_s>=1x best")], ("plain", "policy"), GUARDED, COMPARED)
