"""The result in figures and in words."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from tide_cli.demo.measure import Measurement
from tide_cli.demo.report import DemoResult, as_json, as_table, verdict

OLD = Measurement(1.04, 30.0, {"sql": 1.1, "python": 1.0})


def result(after: Measurement | None, last_gate: str | None = None) -> DemoResult:
    versions = (0,) if after is None else (0, 1)
    return DemoResult(versions, OLD, after, captured_tokens=5000, seconds=312.34, last_gate=last_gate)


def text(value: DemoResult) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(as_table(value))
    return console.export_text()


def test_json_is_one_line_with_the_promised_names() -> None:
    line = as_json(result(Measurement(1.5, 42.0, {"sql": 1.9})))
    assert "\n" not in line
    assert json.loads(line) == {
        "before": {"acceptance_length": 1.04, "output_tok_s": 30.0, "kinds": {"sql": 1.1, "python": 1.0}},
        "after": {"acceptance_length": 1.5, "output_tok_s": 42.0, "kinds": {"sql": 1.9}},
        "versions": ["v0000", "v0001"],
        "captured_tokens": 5000,
        "seconds": 312.3,
    }
    assert json.loads(as_json(result(None)))["after"] is None


def test_the_table_has_both_drafts_and_the_change() -> None:
    shown = text(result(Measurement(1.5, 45.0, {"sql": 1.9, "python": 1.2})))
    for words in (
        "before (v0000)",
        "after (v0001)",
        "1.04",
        "1.50",
        "+0.46",
        "30.0",
        "45.0",
        "1.50 times",
        "sql",
        "+0.80",
    ):
        assert words in shown


def test_the_table_without_a_new_draft_has_one_column() -> None:
    shown = text(result(None))
    assert "before (v0000)" in shown
    assert "after" not in shown
    assert "change" not in shown


def test_a_difference_is_that_of_the_figures_beside_it() -> None:
    value = DemoResult((0, 1), Measurement(1.036, 30.0, {}), Measurement(1.934, 40.0, {}), 1, 1.0, None)
    console = Console(file=io.StringIO(), width=100)
    console.print(as_table(value))
    assert "1.04" in (text := console.file.getvalue())
    assert "1.93" in text
    assert "+0.89" in text
    assert "rose by 0.89" in verdict(value)


@pytest.mark.parametrize(
    ("after", "gate", "improved", "words"),
    [
        (Measurement(1.5, 45.0, {}), None, True, "rose by 0.46, and the output got 1.50 times as fast"),
        (Measurement(1.5, 29.0, {}), None, True, "did not get faster (0.97 times)"),
        (
            Measurement(1.04, 50.0, {}),
            None,
            False,
            "No improvement: the deployed draft's acceptance length differs by +0.00",
        ),
        (Measurement(1.01, 50.0, {}), None, False, "differs by -0.03"),
        (
            None,
            "gain +0.1: not above the margin 0.3",
            False,
            "The last candidate: gain +0.1: not above the margin 0.3.",
        ),
        (None, None, False, "No training cycle has ended."),
    ],
)
def test_the_verdict_is_honest(after: Measurement | None, gate: str | None, improved: bool, words: str) -> None:
    value = result(after, gate)
    assert value.improved is improved
    assert words in verdict(value)
