"""What a matrix makes of its passes, on passes that were written down."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from recorded import LOADS, plan, recorded, recorded_pass
from rich.console import Console

from tide_cli.bench.matrix import MatrixPlan, Pass, order
from tide_cli.bench.matrix_figures import figures
from tide_cli.bench.matrix_table import as_tables, reading, rows


@pytest.mark.parametrize("together", [True, False])
def test_every_pass_has_its_turn_and_no_mode_is_always_first(together: bool) -> None:
    asked = plan("plain", "static", "adapted")
    keys = order(asked, together=together)
    assert len(set(keys)) == len(keys) == 3 * 3 * 2
    assert [number for number, _, _ in keys] == sorted(number for number, _, _ in keys)
    assert {keys[6 * number][1] for number in range(3)} == {"plain", "static", "adapted"}


def test_modes_alternate_where_their_engines_stand_together() -> None:
    modes = [mode for _, mode, _ in order(plan("plain", "static"), together=True)]
    assert modes == ["plain", "static"] * 2 + ["static", "plain"] * 2 + ["plain", "static"] * 2
    apart = [mode for _, mode, _ in order(plan("plain", "static"), together=False)]
    starts = 1 + sum(before != after for before, after in pairwise(apart))
    assert starts == 4  # the engine that ends a round begins the next one


def test_a_slow_round_moves_no_ratio() -> None:
    found = figures(plan("plain", "static"), recorded({"plain": 0.2, "static": 0.1}))
    assert [(cell["mode"], cell["concurrency"]) for cell in found["cells"]] == [
        ("plain", 1),
        ("static", 1),
        ("plain", 4),
        ("static", 4),
    ]
    ratios = [ratio for ratio in found["ratios"] if ratio["to"] == "plain"]
    assert len(ratios) == len(found["ratios"]) / 2 == 2
    for ratio in ratios:
        assert (ratio["mode"], ratio["rounds"], ratio["errors"]) == ("static", 3, {"static": 0, "plain": 0})
        rates = ratio["output_tok_s"]
        assert [rates[name] for name in ("median", "min", "max", "rounds")] == pytest.approx([2, 2, 2, 3])
        assert rates["interval"] == pytest.approx((2, 2))
        assert ratio["itl_p95_ms"]["median"] == pytest.approx(0.5)
        assert ratio["acceptance_length"] is None
        assert ratio["same_text"] == 1.0
        assert [one["request_tok_s"]["ratio"] for one in ratio["by_domain"]] == pytest.approx([2.0, 2.0])
    plain, static = found["cells"][:2]
    assert plain["output_tok_s"] == pytest.approx(5.0)
    assert plain["spread"]["output_tok_s"] == pytest.approx((2.5, 5.0))
    low, high = plain["intervals"]["output_tok_s"]
    assert low < 2.5 < 5.0 < high  # one of three rounds was half as fast
    assert plain["acceptance_length"] is None
    assert static["acceptance_length"] == pytest.approx(63 / 30)
    assert static["acceptance_by_position"] == [1.0]
    assert (static["requests"], static["rounds"], static["errors"]) == (18, 3, 0)
    assert (static["memory"], static["kv_use_peak"]) == (3000, pytest.approx(0.3))
    assert static["client_cpu_share"] == 0.01
    assert [(band["from"], band["requests"]) for band in static["by_prompt_tokens"]] == [(0, 6), (64, 12)]
    assert [(one["domain"], one["requests"]) for one in static["by_domain"]] == [("code", 9), ("sql", 9)]


def test_a_cell_and_its_ratio_are_of_the_same_rounds() -> None:
    """A round in which both were slow is no reason to show a latency that its ratio contradicts."""
    steps = {"plain": (0.1, 0.1, 0.4), "static": (0.12, 0.11, 0.11)}
    passes = [recorded_pass(n, mode, LOADS[0], step[n]) for mode, step in steps.items() for n in range(3)]
    found = figures(plan("plain", "static"), passes)
    plain, static = found["cells"]
    for name in ("ttft_p95_ms", "itl_p95_ms", "e2e_p95_ms"):
        assert static[name] / plain[name] == pytest.approx(found["ratios"][0][name]["median"])


def test_failures_stand_in_the_cell_with_their_reason() -> None:
    load = LOADS[0]
    passes = [recorded_pass(0, "plain", load, 0.1), recorded_pass(0, "static", load, 0.1, failing=2)]
    found = figures(plan("plain", "static", rounds=1), passes)
    static = found["cells"][1]
    assert (static["requests"], static["errors"], static["timeouts"]) == (6, 2, 2)
    assert static["reasons"] == ["no whole answer within 60 s"]
    nothing = figures(plan("plain", rounds=1), [recorded_pass(0, "plain", load, 0.1, failing=6)])
    assert nothing["cells"][0]["output_tok_s"] is None


def test_an_unfinished_matrix_has_the_cells_that_it_has() -> None:
    found = figures(plan("plain", "static"), recorded({"plain": 0.2, "static": 0.1})[:3])
    assert [cell["where"] for cell in found["cells"]] == [
        "plain at concurrency 1",
        "static at concurrency 1",
        "plain at concurrency 4",
    ]
    assert [(one["mode"], one["to"]) for one in found["ratios"]] == [("static", "plain"), ("plain", "static")]
    assert figures(plan("plain", "static"), []) == {"cells": [], "ratios": []}


def test_a_pass_is_the_same_after_it_has_been_kept() -> None:
    asked = plan("plain", "static")
    passes = recorded({"plain": 0.2, "static": 0.1})
    kept = [Pass.from_json(json.loads(json.dumps(one.to_json()))) for one in passes]
    assert [one.key for one in kept] == [one.key for one in passes]
    assert figures(asked, kept)["cells"][0]["output_tok_s"] == pytest.approx(5.0)
    assert "text 0" not in json.dumps(passes[0].to_json())
    assert MatrixPlan.from_json(json.loads(json.dumps(asked.to_json()))) == asked


def test_half_a_character_is_an_answer_like_another() -> None:
    one = recorded_pass(0, "plain", LOADS[0], 0.1)
    odd = replace(one, answers=tuple(replace(answer, text="\ud800") for answer in one.answers))
    kept = [answer["text"] for answer in odd.to_json()["answers"]]
    assert len(set(kept)) == 1
    assert kept != [answer["text"] for answer in one.to_json()["answers"]]


def test_the_table_and_its_reading() -> None:
    found = figures(plan("plain", "static"), recorded({"plain": 0.2, "static": 0.1}))
    console = Console(width=100, file=io.StringIO())
    for table in as_tables(found):
        console.print(table)
    text = console.file.getvalue()
    assert "concurrency 4, 6 requests in each of 3 rounds" in text
    assert "10.0 (2.00)" in text
    assert "0 / 0" in text
    assert "GPU" not in text  # there was none
    plain, static = found["cells"][:2]
    lines = [line.split() for line in text.splitlines()]
    rate = lines.index(["output", "tok/s", "5.0", "10.0", "(2.00)"])
    length = lines.index(["acceptance", "length", "-", "2.10"])
    both = ["–".join(f"{end:.1f}" for end in cell["intervals"]["output_tok_s"]) for cell in (plain, static)]
    assert lines[rate + 1] == ["95", "%", "interval", *both]
    assert lines[length + 1][:4] == ["95", "%", "interval", "-"]
    assert lines[length + 1][4] == "–".join(f"{end:.2f}" for end in static["intervals"]["acceptance_length"])
    assert ["by", "place,", "%", "of", "steps", "-", "100"] in lines
    static["acceptance_by_position"] = [0.5] * 6  # would be wider than the other figures
    assert "  by place, % of steps" not in [row[0] for row in rows(LOADS[0], found)]
    assert reading(found)[0] == "static at concurrency 1: 2.00 times the output of plain (2.00 to 2.00 over 3 rounds)"
