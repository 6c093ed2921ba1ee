from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from recorded import plan, recorded

from tide_cli.bench.adapt_options import AdaptOptions
from tide_cli.bench.adapt_report import adapt_figures
from tide_cli.bench.compare import compare, judge_differences, read_report
from tide_cli.bench.conditions import changed_conditions
from tide_cli.bench.guards import parse_guard
from tide_cli.bench.matrix_figures import figures
from tide_cli.cli import main
from tide_cli.errors import UsageError


def report(**steps: float) -> dict[str, Any]:
    asked = plan(*steps)
    found = {"plan": asked.to_json(), **figures(asked, recorded(steps))}
    environment = {"cpu": "some", "cores": 2, "gpus": [], "packages": {"torch": "1"}, "time": 7.0}
    return json.loads(json.dumps({"environment": environment, "matrix": found}))


def test_figures_meet_by_cell() -> None:
    differences = compare(report(plain=0.2, static=0.1), report(static=0.2, plain=0.2))
    rates = {one.where: one.ratio for one in differences if one.figure == "output_tok_s"}
    assert rates == pytest.approx(
        {f"{mode} at concurrency {n}": ratio for n in (1, 4) for mode, ratio in (("plain", 1.0), ("static", 0.5))}
    )
    assert not {one.figure for one in differences} & {"concurrency", "seed", "time", "requests"}


def test_a_mode_of_the_second_report_only_is_left_out() -> None:
    differences = compare(report(plain=0.2), report(plain=0.2, static=0.1))
    assert {one.where.split()[0] for one in differences} == {"plain"}


def test_what_the_second_report_lacks_is_there_and_meets_no_guard() -> None:
    whole, without, empty = report(plain=0.2, static=0.1), report(plain=0.2), report(plain=0.2, static=0.1)
    for cell in empty["matrix"]["cells"]:
        if cell["mode"] == "static":
            cell.update(dict.fromkeys(("output_tok_s", "itl_p95_ms"), None), errors=18)
    for other in (without, empty):
        differences = compare(whole, other)
        lacking = {(one.where, one.after, one.ratio) for one in differences if one.figure == "output_tok_s"}
        assert ("static at concurrency 1", None, None) in lacking
        for text in ("tok_s>=0.98x", "itl_p95<=9000"):
            found = judge_differences([parse_guard(text)], differences)
            assert [(one.where.split()[0], one.met) for one in found] == [("plain", True), ("static", False)] * 2


def test_what_failed_in_the_second_report_keeps_a_guard_from_being_met() -> None:
    after = report(plain=0.2)
    after["matrix"]["cells"][0]["errors"] = 2
    differences = compare(report(plain=0.2), after)

    def found(*texts: str) -> list[bool]:
        return [one.met for one in judge_differences([parse_guard(text) for text in texts], differences)]

    assert found("tok_s>=0.98x") == [False, True]
    assert found("tok_s>=0.98x", "plain:errors<=2") == [True] * 4
    assert found("errors<=1") == [False, True]


def phase(visit: int) -> dict[str, Any]:
    arms = {arm: {"tok_s": rate, "al": rate} for arm, rate in (("static", 2.0), ("tide", 3.0))}
    return {"name": "code", "visit": visit, "arms": arms}


ADAPT = {
    "environment": {},
    "adapt": {
        "domains": {
            name: {"tide_tok_s": rate, "at": {"1": {"tide_tok_s": rate / 2}}}
            for name, rate in (("code", 8.0), ("sql", 4.0))
        },
        "phases": [phase(0), phase(1)],
        "series": [{"piece": 0, "seconds": 1.0}, {"piece": 1, "seconds": 2.0}],
    },
}


def test_an_adaptation_is_no_different_from_itself() -> None:
    differences = compare(ADAPT, ADAPT)
    assert {one.ratio for one in differences} == {1.0}
    rates = {one.where: one.before for one in differences if one.figure.endswith("tok_s")}
    assert rates == {
        **{"domains code": 8.0, "domains code at 1": 4.0, "domains sql": 4.0, "domains sql at 1": 2.0},
        **{f"phases name code visit {n} {arm}": rate for n in (0, 1) for arm, rate in (("static", 2.0), ("tide", 3.0))},
    }
    for text, places in (("tok_s>=1x", 4), ("tide:al>=1x", 2), ("code:tide_tok_s>=1x", 2)):
        assert [one.met for one in judge_differences([parse_guard(text)], differences)] == [True] * places


def test_two_figures_of_one_name_and_place_are_refused() -> None:
    doubled = {"environment": {}, "part": [{"x": 1}, {"x": 2}]}
    with pytest.raises(UsageError, match="two figures x"):
        compare(doubled, doubled)


def test_figures_of_other_benches_meet_as_well() -> None:
    before = {"environment": {}, "spool": [{"hidden_size": 576, "ingest_mb_s": 100.0}, {"hidden_size": 64, "x": 1}]}
    after = {"environment": {}, "spool": [{"hidden_size": 576, "ingest_mb_s": 150.0}]}
    one, other = compare(before, after)
    assert (one.where, one.figure, one.ratio) == ("hidden_size 576", "ingest_mb_s", 1.5)
    assert (other.where, other.figure, other.after) == ("hidden_size 64", "x", None)
    younger = {"environment": {}, "spool": {"by_hidden_size": after["spool"]}}
    assert [(each.where, each.after) for each in compare(before, younger)] == [(one.where, 150.0), (other.where, None)]


def test_rows_of_round_times_meet_by_batch_and_steps() -> None:
    rows = [{"batch": batch, "steps": steps, "seconds": batch + steps} for batch in (1, 4) for steps in (0, 3)]
    report = {"environment": {}, "profile": {"profile": rows}, "train": {"steps": 9}}
    found = {(one.where, one.figure): one.before for one in compare(report, report)}
    assert found[("profile batch 4 steps 3", "seconds")] == 7.0
    assert found[("", "steps")] == 9.0
    assert len(found) == 5


def test_guards_bound_the_ratio_or_the_later_figure() -> None:
    differences = compare(report(plain=0.2, static=0.1), report(plain=0.2, static=0.2))
    found = judge_differences([parse_guard("tok_s>=0.98x"), parse_guard("static:errors<=0")], differences)
    assert [finding.met for finding in found] == [True, False, True, False, True, True]
    assert found[1].where == "static at concurrency 1"
    for text, why in (
        ("nothing>=1x", "it has errors, timeouts, "),
        ("static:tok_s>=1x plain", "ratio of two modes is static:output_tok_s_ratio"),
        ("adapted:tok_s>=1x", "it has output_tok_s of plain at concurrency 1, "),
    ):
        with pytest.raises(UsageError, match="speaks of no figure") as refused:
            judge_differences([parse_guard(text)], differences)
        assert why in "\n".join(refused.value.lines())


def test_other_conditions_are_told() -> None:
    before, after = report(plain=0.2), report(plain=0.2)
    assert changed_conditions(before, after) == []
    after["environment"]["packages"] = {"torch": "2"}
    after["matrix"]["plan"]["workload"]["sha256"] = "other"
    found = changed_conditions(before, after)
    assert [line.split(":")[0] for line in found] == ["workload", "versions"]


def test_other_settings_rounds_and_drafts_are_told() -> None:
    before, after = report(plain=0.2, static=0.1), report(plain=0.2, static=0.1)
    asked = after["matrix"]["plan"]
    asked["settings"]["static"]["dtype"] = "float32"
    asked["drafts"]["static"]["sha256"] = "1" * 64
    asked.update(rounds=5, seed=1, loads=asked["loads"][:1])
    assert [line.split(":")[0] for line in changed_conditions(before, after)] == [
        *("loads", "rounds", "seed", "draft of static", "dtype of static"),
    ]
    adapt = {"environment": {}, "adapt": {"options": {"order": ["code", "sql"], "settings": {"dtype": "auto"}}}}
    other = {"environment": {}, "adapt": {"options": {"order": ["sql", "code"], "settings": {"dtype": "float32"}}}}
    assert [line.split(":")[0] for line in changed_conditions(adapt, other)] == ["order", "setting dtype"]


def test_a_ratio_by_zero_is_judged_all_the_same() -> None:
    clean, failing = report(plain=0.2), report(plain=0.2)
    failing["matrix"]["cells"][0]["errors"] = 2

    def found(before: Any, after: Any, text: str) -> list[bool]:
        return [one.met for one in judge_differences([parse_guard(text)], compare(before, after))]

    assert found(clean, clean, "errors<=1x") == [True, True]
    assert found(clean, failing, "errors<=1x") == [False, True]
    assert found(failing, clean, "errors<=1x") == [True, True]
    assert found(clean, clean, "errors<=0.5x") == found(clean, clean, "errors<2x") == [True, True]
    assert found(clean, clean, "errors<0.5x") == [False, False]
    (worse, _) = judge_differences([parse_guard("errors<=3x")], compare(clean, failing))
    assert worse.words() == "errors<=3x is not met by plain at concurrency 1: it was 0 before"
    ratios = {one.ratio for one in compare(clean, failing) if one.figure == "errors"}
    assert ratios == {math.inf, 1.0}


def test_ratios_of_modes_are_figures_each_in_one_direction() -> None:
    steps = {"plain": 0.2, "static": 0.1, "adapted": 0.08, "policy": 0.08}
    before, after = report(**steps), report(**{**steps, "policy": 0.16})
    differences = compare(before, after)
    gains = {one.where: (one.before, one.after) for one in differences if one.figure == "output_tok_s_ratio"}
    at_once = {place.partition(" at concurrency 1 ")[::2]: value for place, value in gains.items() if " 1 " in place}
    assert at_once == {
        ("static", "against plain"): (pytest.approx(2.0), pytest.approx(2.0)),
        ("adapted", "against plain"): (pytest.approx(2.5), pytest.approx(2.5)),
        ("adapted", "against static"): (pytest.approx(1.25), pytest.approx(1.25)),
        ("policy", "against plain"): (pytest.approx(2.5), pytest.approx(1.25)),
        ("policy", "against static"): (pytest.approx(1.25), pytest.approx(0.625)),
        ("policy", "against adapted"): (pytest.approx(1.0), pytest.approx(0.5)),
        ("policy", "against best"): (pytest.approx(1.0), pytest.approx(0.5)),
    }
    assert "same_text" in {one.figure for one in differences}

    def met(*texts: str) -> list[bool]:
        return [one.met for one in judge_differences([parse_guard(text) for text in texts], differences)]

    assert met("adapted:output_tok_s_ratio>=0.98x") == [True] * 4
    assert met("policy:output_tok_s_ratio>=0.98x") == [False] * 8
    after["matrix"]["cells"][0]["errors"] = 1  # of plain decoding
    differences = compare(before, after)
    assert met("static:output_tok_s_ratio>=0.98x") == [False, True]
    assert met("static:output_tok_s_ratio>=0.98x", "errors<=1") == [True] * 10


def test_a_ratio_of_modes_is_found_in_whichever_order_they_were_measured() -> None:
    before, after = report(plain=0.2, adapted=0.1), report(adapted=0.1, plain=0.2)
    (one, four) = judge_differences([parse_guard("adapted:output_tok_s_ratio>=0.98x")], compare(before, after))
    assert (one.met, four.met) == (True, True)


def test_what_one_report_does_not_say_of_itself_is_no_change() -> None:
    older = {"environment": {}, "train": {"samples": "made up", "tokens_s": 1.0}}
    options = {"samples": None, "rounds": 3, "settings": {}}
    younger = {"environment": {}, "train": {"samples": "made up", "dtype": "float32", "options": options}}
    assert changed_conditions(older, younger) == changed_conditions(younger, older) == []
    other = {"environment": {}, "train": {"samples": "of /samples", "options": options | {"samples": "/samples"}}}
    assert changed_conditions(younger, other) == ["samples: made up before, of /samples after"]


def test_what_a_part_was_asked_for_is_told() -> None:
    def capture(**changed: Any) -> dict[str, Any]:
        settings = {"target": "smollm2-135m", "dtype": "auto", "seed": 0} | changed.pop("settings", {})
        options = {"concurrency": 4, "rounds": 5, "seed": 0, "workload": None, "prompts_sha256": "1" * 64} | changed
        figures = {"throughput_ratio": 0.99, "errors": 0, "concurrency": 4}
        return {"environment": {}, "capture": {**figures, "options": {**options, "settings": settings}}}

    def told(after: dict[str, Any]) -> list[str]:
        return changed_conditions(capture(), after)

    assert told(capture()) == []
    assert told(capture(concurrency=16, settings={"dtype": "bfloat16"})) == [
        "concurrency: 4 before, 16 after",
        "setting dtype: auto before, bfloat16 after",
    ]
    assert told(capture(seed=1)) == ["seed: 0 before, 1 after"]
    assert told(capture(settings={"seed": 1})) == ["setting seed: 0 before, 1 after"]
    assert [line.split(":")[0] for line in told(capture(prompts_sha256="2" * 64))] == ["prompts"]
    assert told(capture(workload="/elsewhere")) == []  # the same prompts
    assert told(capture(settings={"younger": 1})) == []  # the other one does not know it
    assert not {one.where for one in compare(capture(), capture())} & {"options", "options settings"}
    before, after = ({"environment": {}, "train": {"dtype": dtype, "x": 1}} for dtype in ("float32", "bfloat16"))
    assert changed_conditions(before, after) == ["dtype: float32 before, bfloat16 after"]


def test_everything_that_a_shift_was_asked_for_is_told(tmp_path: Path) -> None:
    for name in ("code", "sql"):
        lines = [json.dumps({"messages": [{"role": "user", "content": f"{name} {i}"}]}) for i in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    asked = {"workload": tmp_path, "order": ("code",), "requests": 4, "held_out": 2, "measure_at": (4, 1)}

    def adapt(**changed: Any) -> dict[str, Any]:
        options = AdaptOptions(**{**asked, **changed})
        made = {"environment": {}, "adapt": adapt_figures(options.to_json(), [], [], {}, [])}
        return json.loads(json.dumps(made))

    changes = [
        *({"measure_at": (1, 4)}, {"general": ("sql",)}, {"general_requests": 5}, {"held_out": 3}, {"mixed": 1}),
        *({"piece": 3}, {"plain": False}, {"with_policy": True}, {"order": ("sql",)}, {"seed": 4}),
    ]
    for change in changes:
        (told,) = changed_conditions(adapt(), adapt(**change))
        (name,) = change
        assert told.startswith(name.replace("_", " ") + ": ")


def test_a_gpu_is_the_same_whatever_it_held() -> None:
    def on(**changed: Any) -> dict[str, Any]:
        return {"environment": {"gpus": [{"name": "H200", "memory": 2**37, "memory_used": 1, **changed}]}}

    assert changed_conditions(on(), on(memory_used=2**30)) == []
    assert [line.split(":")[0] for line in changed_conditions(on(), on(name="H100"))] == ["GPUs"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"environment": 7}', "nothing"])
def test_what_is_no_report(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UsageError):
        read_report(tmp_path / "a.json")
    with pytest.raises(UsageError, match="cannot read"):
        read_report(tmp_path / "absent.json")


def test_a_pipe_to_which_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    with pytest.raises(UsageError, match="cannot read"):
        read_report(tmp_path / "report.json")


@pytest.mark.parametrize("value", ["9" * 400, "NaN", "1e400", "[" * 100_000])
def test_a_report_that_holds_what_no_figure_is(value: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"environment": {}, "x": ' + value + "}")
    with pytest.raises(UsageError, match="cannot read"):
        read_report(tmp_path / "a.json")


def test_a_ratio_without_a_median_is_no_figure() -> None:
    for median in (None, "x", [1]):
        entry = {"environment": {}, "part": {"f": {"median": median, "n": 3}, "m": 1}}
        assert [one.figure for one in compare(entry, entry)] == ["n", "m"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json")]
    files[0].write_text(json.dumps(report(plain=0.2, static=0.1)))
    files[1].write_text(json.dumps(report(plain=0.2, static=0.2)))

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["bench", "compare", *map(str, arguments)])
        return int(end.value.code or 0), *capsys.readouterr()

    code, out, errors = run(*files)
    assert (code, errors) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["static", "at", "concurrency", "1", "output_tok_s", "10", "5", "0.500"] in rows
    code, out, errors = run(*files, "--guard", "tok_s>=0.9x", "--json")
    assert code == 1
    assert json.loads(out)["guards"][1]["met"] is False
    assert errors.splitlines() == [f"tide: tok_s>=0.9x is not met by static at concurrency {n}: 0.5" for n in (1, 4)]
    files[1].write_text(json.dumps(report(plain=0.2)))
    code, out, errors = run(*files, "--guard", "tok_s>=0.98x")
    assert code == 1
    assert ["static", "at", "concurrency", "1", "output_tok_s", "10", "-", "-"] in [
        line.split() for line in out.splitlines()
    ]
    assert f"tide: {files[1]} lacks" in errors
    assert "tok_s>=0.98x is not met by static at concurrency 4: there is no such figure" in errors
    assert run(files[0], tmp_path / "absent.json")[0] == 2
    files[1].write_text('{"environment": {}, "spool": []}')
    code, _, errors = run(*files)
    assert code == 2
    assert "no figure in common" in errors
