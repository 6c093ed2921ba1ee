"""The arithmetic of `tide bench capture`, `swap`, `train` and `profile`, on passes whose answers are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tide_cli.adaptation.gate import Walk
from tide_cli.bench.capture import OFF, ON, capture_figures
from tide_cli.bench.client import Answer
from tide_cli.bench.engines import bench_settings
from tide_cli.bench.load import load_requests
from tide_cli.bench.profile import PLAIN, SPECULATING, profile_figures, together_rate
from tide_cli.bench.requests import Request
from tide_cli.bench.swap import QUIET, SWAPS, SwapPass, swap_figures
from tide_cli.bench.train_figures import (
    Stored,
    Timed,
    accuracy_figures,
    specforge_pass,
    storage_figures,
    train_figures,
)
from tide_cli.bench.train_samples import exported, index_of, lengths, make_samples, read
from tide_cli.cli import main
from tide_cli.errors import TideError, UsageError

REQUEST = Request(({"role": "user", "content": "?"},), 8)


def stream(moments: list[float], text: str = "x", error: str | None = None) -> Answer:
    """An answer with a token at each moment, sent at 0."""
    return Answer(REQUEST, 0.0, moments[0], moments[-1], tuple(moments), 4, len(moments), None, text, error)


def steady(begin: float, every: float, count: int = 11) -> list[float]:
    return [begin + every * place for place in range(count)]


def test_capture_is_compared_round_by_round() -> None:
    """10 tokens a second after the first against 20: the machine became slower with the second round, for both."""
    rounds = [
        {ON: [stream(steady(0.1, 0.1))], OFF: [stream(steady(0.05, 0.05))]},
        {ON: [stream(steady(1.0, 1.0))], OFF: [stream(steady(0.5, 0.5), text="y")]},
    ]
    found = capture_figures(rounds)
    assert found["throughput_ratio"] == pytest.approx(0.5)
    assert found["itl_p95_ratio"] == pytest.approx(2.0)
    assert found["spread"]["throughput_ratio"] == pytest.approx([0.5, 0.5])
    assert (found["rounds"], found["requests"], found["errors"], found["same"]) == (2, 2, 0, 1)
    assert found[ON]["itl_p95_ms"] == pytest.approx(550)
    assert found[ON]["acceptance_length"] is None


def swapped(pauses: list[float], swaps: list[tuple[float, float]], **other: str | None) -> dict[str, SwapPass]:
    """A pass without swaps and pauses of 100 ms, and one whose second stream pauses as said."""
    moments = [1.0]
    for pause in pauses:
        moments.append(moments[-1] + pause)
    quiet = SwapPass([stream(steady(0.9, 0.1, 12)), stream(steady(1.0, 0.1))])
    return {QUIET: quiet, SWAPS: SwapPass([stream(steady(0.9, 0.1, 12)), stream(moments, **other)], swaps)}


def test_a_swap_costs_what_its_pause_is_longer() -> None:
    found = swap_figures([swapped([0.1, 0.1, 0.25, 0.1, 0.1], [(1.22, 1.24), (1.47, 1.5)])])
    assert found["swaps"] == 2
    assert found["usual_gap_ms"] == pytest.approx(100)
    assert found["added_gap_max_ms"] == pytest.approx(150)
    assert found["added_gap_ms"] == pytest.approx(75)  # the other swap fell into a usual pause
    assert (found["failed_requests"], found["identical"]) == (0, True)


def test_a_swap_bears_no_pause_that_as_much_time_without_one_has() -> None:
    """Every third pause lasts 300 ms anyway: a short swap may miss it, one of half a second never does."""
    scattered = [1.0]
    for place in range(30):
        scattered.append(scattered[-1] + (0.3 if place % 3 == 2 else 0.1))
    passed = SwapPass([stream(scattered)])

    def added(*swap: float) -> float:
        found = swap_figures([{QUIET: passed, SWAPS: replace(passed, swaps=[swap])}])
        return float(found["added_gap_ms"])

    assert added(1.02, 1.04) == pytest.approx(0, abs=1e-6)
    assert added(1.25, 1.27) == pytest.approx(200)
    assert added(1.02, 1.52) == pytest.approx(0, abs=1e-6)
    assert added(1.0, 99.0) == pytest.approx(0, abs=1e-6)  # longer than the quiet pass


def test_a_pause_before_all_streams_have_begun_is_none_of_the_swaps() -> None:
    """It waited for the other's prompt."""
    late = [stream([0.1, 0.2, 2.0, 2.1, 2.2]), stream([1.9, 2.0, 2.1, 2.2])]
    quiet = SwapPass([stream(steady(0.1, 0.1))])
    found = swap_figures([{QUIET: SwapPass(late), SWAPS: SwapPass(late, [(0.5, 0.6), (2.02, 2.04)])}])
    assert found["swaps"] == 1
    assert found["added_gap_max_ms"] == pytest.approx(0, abs=1e-6)
    none = swap_figures([{QUIET: quiet, SWAPS: replace(quiet, failures=["refused"])}])
    assert (none["swaps"], none["added_gap_ms"], none["added_gap_max_ms"]) == (0, None, None)
    assert none["usual_gap_ms"] == pytest.approx(100)  # what was measured stays
    assert (none["refused_swaps"], none["refusals"], none["identical"]) == (1, ["refused"], True)


def test_changed_texts_and_failures_are_found() -> None:
    found = swap_figures([swapped([0.1] * 5, [(1.22, 1.24)], text="y", error="broke off")])
    assert (found["identical"], found["changed_texts"]) == (False, 0)
    assert (found["failed_requests"], found["reasons"]) == (1, ["broke off"])
    found = swap_figures([swapped([0.1] * 5, [(1.22, 1.24)], text="y")])
    assert (found["identical"], found["changed_texts"], found["failed_requests"]) == (False, 1, 0)


def test_the_rate_of_training() -> None:
    rounds = [
        {"tide": Timed(1000, 2.0, 4), "specforge": Timed(1000, 4.0, 8)},
        {"tide": Timed(1000, 4.0, 4), "specforge": Timed(1000, 10.0, 8)},
    ]
    found = train_figures(rounds)
    assert (found["tokens_s"], found["specforge_tokens_s"]) == (375, 175)
    assert found["ratio"] == 2.25
    assert found["spread"]["ratio"] == [2.125, 2.375]
    assert (found["steps"], found["specforge_steps"], found["rounds"]) == (4, 8, 2)


def test_the_last_pass_of_specforge_counts() -> None:
    lines = [f"step {n}: {{'loss': 2.5, 'acc': [0.1], 'perf/optimizer_step_time_s': {n}.5}}" for n in range(1, 7)]
    assert specforge_pass("\n".join(["loading", *lines, "done"]), 300, 2) == Timed(300, 4.5 + 5.5 + 6.5, 3)
    with pytest.raises(TideError, match="has printed no step"):
        specforge_pass("loading\n", 300, 2)
    with pytest.raises(TideError, match="not the expected one"):
        specforge_pass("step 1: {'loss': 1.0}\nstep 2: {'loss': 1.0}\n", 300, 2)


def test_what_is_stored_and_how_long_it_takes() -> None:
    rounds = [
        {"tide": Timed(1000, 2.0, 4), "specforge": Timed(1000, 4.0, 8)},
        {"tide": Timed(1000, 4.0, 4), "specforge": Timed(1000, 10.0, 8)},
    ]
    found = storage_figures({"tide": Stored(200, 9000, 0.5), "specforge": Stored(200, 10000, 0.25)}, rounds)
    assert found["bytes_per_token"] == {"tide": 45, "specforge": 50}
    assert found["stored_bytes"] == {"tide": 9000, "specforge": 10000}
    assert found["seconds"] == {"tide": {"store": 0.5, "pass": 3.0}, "specforge": {"store": 0.25, "pass": 7.0}}


def test_the_lengths_of_the_drafts_on_held_out_samples() -> None:
    walks = {
        "first": [Walk(10, 10), Walk(20, 20)],
        "tide": [Walk(10, 5), Walk(20, 10)],
        "specforge": [Walk(10, 8), Walk(20, 16)],
    }
    found = accuracy_figures(walks)
    assert found["acceptance_length"] == {"first": 1.0, "tide": 2.0, "specforge": 1.25}
    assert (found["held_out_samples"], found["held_out_tokens"]) == (2, 30)
    assert found["length_difference"] == 0.75
    assert found["length_interval"] == [0.75, 0.75]  # both samples say the same
    assert found["acceptance_intervals"] == {"first": [1.0, 1.0], "tide": [2.0, 2.0], "specforge": [1.25, 1.25]}
    none = accuracy_figures({})
    assert (none["acceptance_length"], none["length_difference"], none["length_interval"]) == (None, None, None)
    assert none["held_out_samples"] == 0
    assert none["acceptance_intervals"] is None


def test_the_interval_of_a_length_is_its_own() -> None:
    """TIDE's samples differ, SpecForge's do not."""
    walks = {
        "first": [Walk(10, 10)] * 4,
        "tide": [Walk(10, rounds) for rounds in (4, 5, 6, 8)],
        "specforge": [Walk(10, 8)] * 4,
    }
    found = accuracy_figures(walks)
    low, high = found["acceptance_intervals"]["tide"]
    assert 10 / 8 <= low < found["acceptance_length"]["tide"] < high <= 10 / 4
    assert found["acceptance_intervals"]["specforge"] == [1.25, 1.25]


def trained(samples: str) -> dict[str, Any]:
    """What `TrainBench.run` says, of samples that were `exported` or `made up`."""
    rounds = [{"tide": Timed(1000, 2.0, 4), "specforge": Timed(1000, 4.0, 8)}]
    walks = {"first": [Walk(10, 10)] * 2, "tide": [Walk(10, 5)] * 2, "specforge": [Walk(10, 8)] * 2}
    stored = {"tide": Stored(200, 9000, 0.5), "specforge": Stored(200, 10000, 0.25)}
    figures = train_figures(rounds) | storage_figures(stored, rounds)
    figures |= accuracy_figures(walks if samples == "exported" else {})
    figures |= {"passes": 2, "sample_count": 3, "samples": samples, "acceptance_note": "nothing to learn"}
    more = {"threads": 1, "dtype": "float32", "depths": 7, "specforge_batch_size": 4, "batch_tokens": 512}
    return figures | more


@pytest.mark.parametrize("samples", ["exported", "made up"])
def test_the_trainers_in_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], samples: str
) -> None:
    figures = trained(samples)
    monkeypatch.setattr("tide_cli.bench.train.TrainBench.run", lambda bench, progress: figures)
    with pytest.raises(SystemExit) as end:
        main(["bench", "train"])
    assert end.value.code == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    lengths = ["2.000", "1.250"] if samples == "exported" else ["-", "-"]
    assert ["acceptance", "length,", "held-out", "samples", *lengths] in lines
    assert ["bytes", "a", "token", "45", "50"] in lines
    last = " ".join(lines[-2])
    assert ("+0.750 (+0.750 to +0.750)" if samples == "exported" else "no acceptance length: nothing to learn") in last


@pytest.mark.parametrize(("samples", "plots"), [("exported", 4), ("made up", 3)])
def test_the_trainers_as_json_and_on_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, samples: str, plots: int
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("tide_cli.bench.train.TrainBench.run", lambda bench, progress: trained(samples))
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as end:
        main(["bench", "train", "--json", "--html", str(page), "--guard", "ratio>=2.5"])
    printed = capsys.readouterr()
    found = json.loads(printed.out)["train"]
    assert end.value.code == 1
    assert "ratio>=2.5 is not met by train: 2" in printed.err
    names = {"tokens_s", "specforge_tokens_s", "ratio", "spread", "rounds", "tokens", "steps", "specforge_steps"}
    names |= {"stored_tokens", "stored_bytes", "bytes_per_token", "seconds", "acceptance_length", "length_interval"}
    names |= {"acceptance_intervals", "held_out_samples", "held_out_tokens", "length_difference", "guards"}
    assert names <= found.keys()
    text = page.read_text()
    assert text.count("<svg ") == plots
    assert "<td>bytes a token</td><td>45</td><td>50</td>" in text
    assert ("held-out samples</td><td>2.000</td>" in text) == (samples == "exported")


def test_expected_and_measured_speed_up() -> None:
    """Rounds of 3 steps take twice as long as plain ones and bring 2.5 tokens: 1.25 times as fast.

    The first token of the eleven comes of the prompt.
    """
    cells = {(1, 0): 0.1, (1, 3): 0.2, (4, 0): 0.2, (4, 3): 0.5}
    profile = {
        "conditions": {"target": "tiny"},
        "rounds": [{"batch": b, "steps": s, "seconds": seconds} for (b, s), seconds in cells.items()],
    }
    plain = [stream(steady(0.5, 0.1)), stream(steady(0.5, 0.1))]
    fast = [replace(one, verify_steps=4, completion_tokens=11) for one in (stream(steady(0.5, 0.08)),) * 2]
    found = profile_figures(
        profile, {1: [{PLAIN: plain, SPECULATING: fast}] * 2, 2: [{PLAIN: plain, SPECULATING: fast}]}
    )
    (one,) = found["batches"]  # the engine has measured no batch of 2
    assert found["left_out"] == [2]
    assert (one["batch"], one["steps"], one["acceptance_length"], one["round_tokens"]) == (1, 3, 2.75, 2.5)
    assert one["predicted"] == pytest.approx(1.25)
    assert one["measured"] == pytest.approx(1.25)
    assert found["max_error"] == pytest.approx(0, abs=1e-6)
    with pytest.raises(TideError, match="nothing could be compared"):
        profile_figures(profile, {})


def test_the_rate_counts_while_all_streams_run() -> None:
    assert together_rate([stream([0.0, 1.0, 2.0, 3.0]), stream([1.0, 2.0, 3.0, 4.0])]) == 2.0
    assert together_rate([stream([0.0, 1.0]), stream([2.0, 3.0])]) is None
    assert together_rate([]) is None


def test_made_up_samples_are_in_the_format_of_exports(tmp_path: Path) -> None:
    files = make_samples(tmp_path / "made", 3, 8, range(100, 200))
    for number, (file, length) in enumerate(zip(files, lengths(files), strict=True)):
        sample = read(file, number)
        assert sample.info.tokens == length == len(sample.tokens)
        assert sample.aux.shape == (length, 24)
        assert sample.final.shape == (length, 8)
        assert 0 < sample.info.generated == int(sample.loss_mask.sum())
        assert 100 <= int(sample.tokens.min()) <= int(sample.tokens.max()) < 200
    assert lengths(make_samples(tmp_path / "again", 3, 8, range(100, 200))) == lengths(files)
    with pytest.raises(TideError, match="made"):
        exported(tmp_path / "made", 8)


def test_specforge_finds_the_tensors_of_a_single_file(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    target = tmp_path / "target"
    target.mkdir()
    save_file({"model.embed_tokens.weight": torch.zeros(2, 2)}, target / "model.safetensors")
    view, head = index_of(target, tmp_path / "view")
    assert head == "model.embed_tokens.weight"  # tied
    index = json.loads((view / "model.safetensors.index.json").read_text())
    assert index == {"weight_map": {"model.embed_tokens.weight": "model.safetensors"}}
    assert (view / "model.safetensors").samefile(target / "model.safetensors")
    assert index_of(target, tmp_path / "view") == (view, head)


def test_requests_of_the_users_or_generated(tmp_path: Path) -> None:
    generated = load_requests(None, 5, 16, seed=1)
    assert len({str(request.messages) for request in generated}) == 5
    assert {request.max_tokens for request in generated} == {16}
    file = tmp_path / "own.jsonl"
    lines = [json.dumps({"messages": [{"role": "user", "content": str(n)}]}) for n in range(3)]
    file.write_text("\n".join(lines))
    assert len(load_requests(file, 3, 16, seed=1)) == 3
    with pytest.raises(UsageError, match="has 3 different prompts, 4 are asked for"):
        load_requests(file, 4, 16, seed=1)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["capture", "--workload", "none.jsonl"], 2, "cannot read the workload none.jsonl"),
        (["capture", "--dtype", "float8"], 2, "'float8' is not accepted"),
        (["swap", "--every", "0"], 2, "--every"),
        (["train", "--samples", "none"], 1, "none is no export"),
        (["profile", "--batches", "1,x"], 2, "--batches '1,x' is not a list of whole numbers"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", *arguments])
    assert end.value.code == code
    lines = capsys.readouterr().err.splitlines()
    assert words in lines[0]
    assert len(lines) <= 3  # what, why and the next command: no fault of the program's own


def test_a_small_ring_keeps_as_many_old_samples_as_an_appliance_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench_settings(tmp_path)
    assert (made.spool_size, made.reservoir_size) == (2**29, 2**28)
    monkeypatch.setenv("TIDE_RESERVOIR_SIZE", "1MiB")
    assert bench_settings(tmp_path).reservoir_size == 2**20
