"""The checks for a GPU, tried without one: they skip, they run with torch alone, and they find what they look for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import check_capture
import check_pool
import check_swap
import check_training
import pytest
import torch
from gpu_device import CloneStaging, CpuDevice
from gpu_draft import ServedDraft
from gpu_loop import ForwardLoop, LoopSize, RoundGraphs
from gpu_main import small_target
from gpu_rows import write_rows, wrong_rows
from torch import Tensor

from tide_cli.engine.plugin.staging import HostCopy, Staging

HERE = Path(__file__).parent
SIZE = LoopSize(hidden=64, requests=3, prompt=20, output=24, round_ms=0.0)
AMOUNT = check_capture.Amount(rounds=40, pairs=2, arm=10, ring=2**24)
NOT_THERE = ("sglang", "specforge", "transformers", "sqlite_utils", "pydantic", "pydantic_settings", "typer", "httpx")


def run(folder: Path, *options: str, without: tuple[str, ...] = ()) -> tuple[int, list[dict]]:
    """Exit code and JSON lines of tests/gpu/run, where some packages cannot be imported. folder: for its files."""
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({without!r}))
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(HERE / "run"), *options, "--folder", str(folder)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_without_a_device_it_skips(tmp_path: Path) -> None:
    code, lines = run(tmp_path, without=NOT_THERE)
    assert code == 0
    assert [(line["summary"], line["why"]) for line in lines] == [("skipped", "there is no CUDA device")]


def test_every_check_runs_with_torch_alone_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    code, [*checks, summary] = run(tmp_path, "--device", "cpu", "--small", "--allow-partial", without=NOT_THERE)
    assert [(line["check"], line["faults"]) for line in checks] == [
        ("capture", []),
        ("pool", []),
        ("training", []),
        ("swap", []),
    ]
    assert code == 0
    assert summary["summary"] == "partial"
    assert summary["left_out"] == {
        "capture": "the spool's writer: sqlite-utils is not installed",
        "training": "the step: specforge is not installed",
    }
    assert not any(line["gpu_figures"] for line in (*checks, summary))


def test_what_is_left_out_is_no_success_unless_it_is_allowed(tmp_path: Path) -> None:
    code, [_, summary] = run(tmp_path, "--device", "cpu", "--small", "--only", "training", without=NOT_THERE)
    assert (code, summary["summary"], summary["faults"]) == (1, "partial", 0)
    assert (HERE.parents[1] / summary["remedy"].split()[-1]).is_file()


def test_the_packages_of_the_checks_are_those_of_the_project() -> None:
    wanted = {line.split()[0] for line in (HERE / "requirements.txt").read_text().splitlines() if line[0] != "#"}
    groups = (HERE.parents[1] / "pyproject.toml").read_text()
    missing = [one for one in wanted if f'"{one}"' not in groups]
    assert [one.partition("==")[0] for one in missing] == ["python-dateutil"]  # of sqlite-utils, and not pinned
    assert {"sqlite-utils", "specforge", "transformers"} <= {one.partition("==")[0] for one in wanted}


def test_with_everything_installed_the_step_is_taken_from_the_spool(tmp_path: Path) -> None:
    code, [training, _] = run(tmp_path, "--device", "cpu", "--small", "--only", "training")
    assert code == 0
    assert training["samples_from"] == "the product's spool"
    assert training["batches"][0]["tokens"] == 32
    assert "walk_ms" in training
    assert training["walk_in_chunks_agrees"] == {"gate": 1.0, "third": 1.0}
    assert training["in_turns_gradient_apart"] < 0.02  # bfloat16, where the processor has it
    assert "join_s" in training


def test_rows_know_their_place() -> None:
    requests, positions = torch.full((4,), 7, dtype=torch.int32), torch.arange(30, 34, dtype=torch.int32)
    rejected = torch.tensor([0, 0, 0, 1], dtype=torch.int32)
    aux, final = write_rows(requests, positions, rejected, 8)
    assert (aux.shape, final.shape) == ((4, 24), (4, 8))
    assert wrong_rows(aux[:3], final[:3], 7, range(30, 33)) == 0
    assert wrong_rows(aux, final, 7, range(30, 34)) == 1  # the target rejected the last one
    assert wrong_rows(aux[:3], final[:3], 8, range(30, 33)) == 3
    assert wrong_rows(aux[:3], final[:3], 7, range(31, 34)) == 3
    torn = aux.clone().view(torch.int16)
    torn[1, 20:] = torn[2, 20:]
    assert wrong_rows(torn.view(torch.bfloat16)[:3], final[:3], 7, range(30, 33)) == 1


def test_more_memory_than_planned_is_a_fault() -> None:
    figures: dict[str, object] = {}
    assert check_training._against_the_plan("walk", 150, 200, figures) == []
    assert figures == {"walk_reserved_bytes": 150, "walk_of_the_plan": 0.75}
    assert check_training._against_the_plan("steps", 250, 200, figures) == ["the steps took 25.0% more than planned"]


def test_what_a_part_of_the_work_drops_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_capture, "spool_writer", lambda *_: None)
    loop = ForwardLoop(CpuDevice(), SIZE, RoundGraphs(CpuDevice(), SIZE, draft_first=True))
    figures, faults = check_capture._overhead(CpuDevice(), loop, AMOUNT, tmp_path)
    assert faults == []
    assert "sqlite-utils" in figures["left_out"]
    monkeypatch.setattr(check_capture.plugin, "_QUEUED_BYTES", 1)
    assert "dropped" in check_capture._overhead(CpuDevice(), loop, AMOUNT, tmp_path)[1][0]


def test_a_walk_in_chunks_that_proposes_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tide_cli.training import walk

    def careless(draft, tokens, aux, start, steps, at_once=None):
        draft.compute_logits(torch.eye(6)[: at_once or 3].repeat(6 // (at_once or 3), 1))

    monkeypatch.setattr(walk, "accepted_drafts", careless)
    longest = SimpleNamespace(tokens=None, aux=None, info=SimpleNamespace(tokens=6))
    trainer = SimpleNamespace(walker=SimpleNamespace(compute_logits=lambda hidden: hidden))
    _, faults = check_training._walk_in_chunks(CpuDevice(), trainer, longest, [])
    assert len(faults) == 2


def test_states_that_are_handed_over_without_a_copy_are_found_torn(tmp_path: Path) -> None:
    class Careless(CpuDevice):
        def staging(self) -> Staging:
            return Staging()  # right for an eager forward, wrong for a graph's outputs

    figures, faults = check_capture.run(Careless(), SIZE, AMOUNT, tmp_path)
    assert figures["torn_rows"] > 0
    assert any("not what they ought to be" in fault for fault in faults)


def test_a_prefill_whose_last_states_are_handed_over_without_a_copy_is_found_torn(tmp_path: Path) -> None:
    class Careless(CpuDevice):
        def staging(self) -> Staging:
            return CarelessOfPrefills()

    class CarelessOfPrefills(CloneStaging):
        def copy(self, **tensors: Tensor | None) -> HostCopy:
            return (super() if tensors["accept_lens"] is not None else Staging()).copy(**tensors)

    _, faults = check_capture.run(Careless(), SIZE, AMOUNT, tmp_path)
    assert any("not what they ought to be" in fault for fault in faults)


def test_states_that_are_taken_late_are_wrong_where_the_drafts_graph_came_first() -> None:
    figures, faults = check_pool.run(CpuDevice(), SIZE)
    assert faults == []
    assert figures["draft_captured_first"]["taken_after_the_draft"] == 1.0
    assert figures["target_captured_first"]["taken_after_the_draft"] == 0.0


def test_a_swap_that_leaves_something_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = ServedDraft.load_weights

    def forgets(model: ServedDraft, weights) -> None:
        load(model, [(name, tensor) for name, tensor in weights if name != "lm_head.weight"])

    folder = tmp_path / "whole"
    folder.mkdir()
    figures, faults = check_swap.run(CpuDevice(), small_target(), SIZE, folder)
    assert faults == []
    assert figures["longest_gap_ms"].keys() == {"alone", "while_preparing"}
    apply = check_swap.DraftSwap._apply

    def careless(swap, key: str, value: float) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ServedDraft, "load_weights", forgets)
            apply(swap, key, value)

    monkeypatch.setattr(check_swap.DraftSwap, "_apply", careless)
    folder = tmp_path / "part"
    folder.mkdir()
    assert any("logits" in fault for fault in check_swap.run(CpuDevice(), small_target(), SIZE, folder)[1])
