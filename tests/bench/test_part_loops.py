"""`tide bench capture`, `swap` and `profile` from the command line to the report, on stand-ins for the engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from scripted_arms import Engine, Told, World, stand_in
from test_page import check

from tide_cli.bench.capture import CaptureBench
from tide_cli.bench.load import load_requests
from tide_cli.bench.profile import ProfileBench
from tide_cli.bench.swap import SwapBench
from tide_cli.cli import main
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import read_draft
from tide_cli.errors import TideError

ROUND_MS = {(1, 0): 100.0, (1, 3): 200.0, (2, 0): 100.0, (2, 3): 200.0}

# the names that a report keeps
CAPTURE = {
    *("throughput_ratio", "itl_p95_ratio", "spread", "on", "off", "rounds", "requests", "errors", "reasons", "same"),
    *("concurrency", "stored_tokens", "dropped_requests", "guards", "failures"),
}
SWAP = {
    *("failed_requests", "reasons", "identical", "changed_texts", "added_gap_ms", "added_gap_max_ms", "usual_gap_ms"),
    *("usual_gap_p99_ms", "spread", "swaps", "refused_swaps", "refusals", "requests", "rounds", "streams"),
    *("guards", "failures"),
}
PROFILE = {
    *("batches", "left_out", "mean_error", "max_error", "rounds", "requests", "errors", "reasons", "conditions"),
    *("profile", "guards", "failures"),
}
BATCH = {
    *("batch", "steps", "predicted", "measured", "spread", "error", "acceptance_length", "round_tokens"),
    *("round_ms", "plain_round_ms"),
}

Bench = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    made = stand_in(monkeypatch, tmp_path / "drafts")
    rounds = [{"batch": b, "steps": s, "seconds": ms / 1e3} for (b, s), ms in ROUND_MS.items()]
    made.profile = {"conditions": {"target": "tiny", "device": "cpu"}, "rounds": rounds}
    return made


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """`tide bench …` with --json: exit code, the part of the report, and what stands on stderr."""

    def run(name: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
        with pytest.raises(SystemExit) as end:
            main(["bench", name, *map(str, arguments), "--json"])
        printed = capsys.readouterr()
        report = json.loads(printed.out) if printed.out else {}
        return int(end.value.code or 0), report.get(name, {}), printed.err

    return run


def text_of(command: Sequence[object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["bench", *map(str, command)])
    return int(end.value.code or 0), capsys.readouterr().out


def test_capture_is_measured_in_turns_from_an_empty_cache(world: World) -> None:
    requests = load_requests(None, 3, 8, seed=0)
    told = Told()
    found = CaptureBench(requests, 2, 2, {"target": "tiny"}).run(told)
    assert world.own == {"on": {"capture": True}, "off": {"capture": False}}
    assert world.common == {"target": "tiny", "speculation": "on"}
    assert world.sent() == [(name, 3, 2, True) for name in ("on", "off", "off", "on")]
    asked = [entry for entry in world.journal if entry[0] in ("flush", "send")]
    assert [entry[:2] for entry in asked[::2]] == [("flush", entry[1]) for entry in asked[1::2]]
    assert told.ticks == [(pytest.approx(i / 3), 4) for i in range(13)]
    assert told.all.index((4.0, 4)) < len(told.all) - 1  # the last line knows that all is done
    assert (found["stored_tokens"], found["dropped_requests"], found["concurrency"]) == (40, 3, 2)


def test_the_report_of_capture(world: World, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world.every_ms = lambda engine: 100.0 if engine.name == "on" else 80.0
    page = tmp_path / "page.html"
    code, found, _ = bench("capture", "--requests", 2, "--rounds", 2, "--html", page)
    assert code == 0
    assert found.keys() >= CAPTURE
    assert found["throughput_ratio"] == pytest.approx(0.8, rel=0.01)
    assert found["itl_p95_ratio"] == pytest.approx(1.25)
    assert (found["requests"], found["same"], found["errors"]) == (4, 4, 0)
    check(page.read_text())
    assert "throughput on / off  0.8" in page.read_text()
    code, text = text_of(["capture", "--requests", 2, "--rounds", 2], capsys)
    assert code == 0
    assert "inter-token latency p95, ms  100.00      80.00" in text


def test_a_failed_request_fails_the_measurement_of_capture(world: World, bench: Bench) -> None:
    world.answer = lambda engine, place: ("", "refused (400)") if place == 1 and engine.name == "on" else ("x", None)
    asked = ("--requests", 2, "--rounds", 1)
    code, found, errors = bench("capture", *asked)
    assert (code, found["errors"], found["reasons"]) == (1, 1, ["refused (400)"])
    assert found["failures"] == ["1 request failed: refused (400)"]
    assert "tide: 1 request failed: refused (400)" in errors
    assert bench("capture", *asked, "--guard", "errors<=1")[0] == 0
    code, found, errors = bench("capture", *asked, "--guard", "throughput_ratio>=0.1")
    assert code == 1
    assert found["guards"][0]["failed"] == "1 request failed"
    assert "throughput_ratio>=0.1 is not met by capture" in errors


def drafts(folder: Path) -> DraftStore:
    """A store with one draft."""
    made = folder / "made"
    made.mkdir()
    tensors = {"fc.weight": torch.randn(4, 4), "d2t": torch.arange(4)}
    save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
    (made / "config.json").write_text("{}")
    store = DraftStore(folder / "drafts")
    fields = {"target": "tiny", "target_revision": "r1", "vocab_map_hash": "ab" * 32}
    store.publish(made, parent=None, samples=0, tokens=0, gate=None, **fields)
    return store


def test_drafts_are_swapped_to_and_fro_under_every_stream(world: World, tmp_path: Path) -> None:
    store = drafts(tmp_path)
    world.swaps_in_a_pass = 3
    told = Told()
    requests = load_requests(None, 2, 8, seed=0)
    found = SwapBench(requests, 1, 0.01, {"target": "tiny"}).run(told)
    assert world.common == {"target": "tiny", "speculation": "on", "capture": False}
    assert world.sent() == [("engine", 2, 2, False)] * 2
    used = [entry[1] for entry in world.journal if entry[0] == "use"]
    assert used[:2] == [0, 0]  # both passes begin with the draft that is there
    assert used[2:5] == [1, 0, 1]
    first, second = (read_draft(store.path(version)) for version in (0, 1))
    assert torch.equal(first["d2t"], second["d2t"])
    assert 0 < float((first["fc.weight"] - second["fc.weight"]).abs().max()) < 0.01
    assert {file.name for file in store.path(1).iterdir()} == {file.name for file in store.path(0).iterdir()}
    assert 1 <= found["swaps"] <= world.swapped
    assert found["identical"]
    assert told.ticks == [(0, 2), (0.5, 2), (1.0, 2), (1.5, 2), (2.0, 2)]


def test_the_report_of_swap(world: World, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drafts(tmp_path)
    world.swaps_in_a_pass = 1
    page = tmp_path / "page.html"
    few = ("--streams", 2, "--every", 0.1, "--rounds", 1)
    code, found, _ = bench("swap", *few, "--html", page, "--guard", "failed_requests<=0")
    assert code == 0
    assert found.keys() >= SWAP
    assert (found["failed_requests"], found["identical"], found["refused_swaps"]) == (0, True, 0)
    assert [one["met"] for one in found["guards"]] == [True]
    assert "<td>texts as without swaps</td><td>all</td>" in page.read_text()
    assert "<ul></ul>" not in page.read_text()
    code, text = text_of(["swap", *few], capsys)
    assert code == 0
    assert "2 streams, 1 round" in text


def test_a_refused_swap_is_told_and_fails_the_measurement(world: World, bench: Bench, tmp_path: Path) -> None:
    drafts(tmp_path)
    world.swaps_in_a_pass, world.refusing = 1, True
    code, found, errors = bench("swap", "--streams", 2, "--every", 0.1, "--rounds", 1)
    assert code == 1
    assert found["refused_swaps"] >= 1
    assert (found["swaps"], found["added_gap_ms"]) == (0, None)
    assert "refused: the draft cannot be loaded" in errors
    assert "no swap fell into a stream: choose longer answers with --max-tokens, or a smaller --every" in errors


def test_a_changed_text_fails_the_measurement(world: World, bench: Bench, tmp_path: Path) -> None:
    drafts(tmp_path)
    world.swaps_in_a_pass = 1
    texts = iter("aabb")
    world.answer = lambda engine, place: (next(texts), None)
    few = ("--streams", 2, "--every", 0.1, "--rounds", 1)
    code, found, errors = bench("swap", *few)
    assert (code, found["identical"], found["changed_texts"]) == (1, False, 2)
    assert "2 of 2 texts differ from those without swaps" in errors
    texts = iter("aabb")
    assert bench("swap", *few, "--guard", "changed_texts<=2")[0] == 0


def plain_or_fast(engine: Engine) -> float:
    return 100.0 if engine.steps == 0 else 80.0


def test_every_batch_size_is_measured_with_and_without_a_draft(world: World) -> None:
    world.every_ms = plain_or_fast
    told = Told()
    found = ProfileBench(load_requests(None, 2, 8, seed=0), [1, 2], 2, {"target": "tiny"}).run(told)
    assert world.common == {"target": "tiny", "capture": False, "speculation": "auto"}
    asked = [entry for entry in world.journal if entry[0] in ("steps", "send")]
    turns = [(0, 1), (3, 1), (3, 1), (0, 1), (0, 2), (3, 2), (3, 2), (0, 2)]
    assert asked[:-1] == [one for s, n in turns for one in (("steps", s), ("send", "engine", n, n, False))]
    assert asked[-1] == ("steps", -1)  # the policy decides again
    assert told.ticks[0] == (0, 8)
    assert told.ticks[-1] == (8, 8)
    assert [one["batch"] for one in found["batches"]] == [1, 2]
    assert (found["rounds"], found["requests"], found["errors"]) == (2, 12, 0)


def test_the_report_of_profile(world: World, bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    world.every_ms = plain_or_fast
    page = tmp_path / "page.html"
    code, found, _ = bench("profile", "--batches", "1,2", "--html", page, "--guard", "max_error<=0.01")
    assert code == 0
    assert found.keys() >= PROFILE
    one = found["batches"][0]
    assert one.keys() == BATCH
    assert (one["acceptance_length"], one["round_tokens"]) == (11 / 4, 10 / 4)  # the first token comes of the prompt
    assert one["predicted"] == pytest.approx(1.25)
    assert one["measured"] == pytest.approx(1.25)
    assert found["guards"][0]["met"]
    check(page.read_text())
    assert page.read_text().count("<svg ") == 2
    code, _, errors = bench("profile", "--batches", "1,2", "--guard", "2:measured>=1.3")
    assert code == 1
    assert "2:measured>=1.3 is not met by 2 at a time: 1.25" in errors


def test_a_batch_size_without_round_times_is_refused_before_it_is_measured(world: World, bench: Bench) -> None:
    code, found, errors = bench("profile", "--batches", "1,4")
    assert (code, found, world.sent()) == (1, {}, [])
    assert "the engine has not measured rounds of 4 requests" in errors
    assert "--batches 1,2 can be compared" in errors
    world.journal.clear()
    code, _, errors = bench("profile", "--batches", "1,6")
    assert code == 2
    assert "--batches 6 cannot be compared: round times are measured at 1,2,4,8,16,32,64 requests" in errors
    assert world.journal == []


def test_a_failed_request_fails_the_measurement_of_profile(world: World, bench: Bench) -> None:
    world.every_ms = plain_or_fast
    world.answer = lambda engine, place: ("x", "broke off" if place else None)
    code, found, errors = bench("profile", "--batches", "1,2", "--rounds", 1)
    assert (code, found["errors"], found["reasons"]) == (1, 2, ["broke off"])
    assert "2 requests failed: broke off" in errors


def test_profile_names_what_it_leaves_out(world: World, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world.every_ms = plain_or_fast
    monkeypatch.setattr("tide_cli.bench.profile.together_rate", lambda answers: None if len(answers) == 2 else 1.0)
    code, found, errors = bench("profile", "--batches", "1,2")
    assert (code, found["left_out"]) == (1, [2])
    assert "no figure for 2 at a time" in errors


def test_an_engine_that_does_not_come_up_is_told(world: World, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise TideError("no memory")

    monkeypatch.setattr("tide_cli.bench.capture.warm_engines", fails)
    assert bench("capture")[0] == 1
