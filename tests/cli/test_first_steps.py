"""What somebody meets who knows nothing but the README: sizes, examples, empty lists, waiting, usage."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import ROOT, tide

from tide_cli.cli.spool_change import _confirmed
from tide_cli.errors import UsageError
from tide_cli.file_locks import is_locked
from tide_cli.hardware.examples import LARGE, examples, inventory_file
from tide_cli.paths import Paths
from tide_cli.printable import many, printable_lines
from tide_cli.spool.erase import Which
from tide_cli.targets.known import known_targets
from tide_cli.targets.shape import TargetShape


def test_what_does_not_fit_here_names_a_machine_that_it_fits(tmp_path: Path) -> None:
    machine = tmp_path / "small.json"
    machine.write_text((ROOT / "tests" / "hardware" / "inventories" / "cpu-1.json").read_text())
    script = f"""
from pathlib import Path
import tide_cli.cli.plan as plan
small = plan.read_machine(Path({str(machine)!r}))
plan.this_machine = lambda paths: small
from tide_cli.cli import main
main(["plan", "--target", "gpt-oss-120b"])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    refused = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60
    )
    assert refused.returncode == 2
    (again,) = re.findall(r"`tide (plan [^`]+)`", refused.stderr)
    assert all(name in refused.stderr for name in examples())
    planned = tide(*again.split())
    assert (planned.returncode, "tensor parallel 8" in planned.stdout) == (0, True)
    other = tide("plan", "--target", "gpt-oss-120b", "--inventory", machine)
    assert "--inventory" not in other.stderr  # which was given


def test_examples_are_named_in_any_case_and_say_where_their_figures_are_from(tmp_path: Path) -> None:
    assert set(examples()) == {"1xH200", LARGE, "2xRTX-6000-Ada", "4xMI300X-4xMI250"}
    assert inventory_file(Path("8XH100")) == examples()[LARGE]
    assert inventory_file(tmp_path) == tmp_path
    assert all(json.loads(file.read_text())["source"] for file in examples().values())
    absent = tide("plan", "--inventory", "9xH100")
    assert absent.returncode == 2
    assert LARGE in absent.stderr


def test_a_checkpoint_that_is_doubled_on_a_cpu_says_so(tmp_path: Path) -> None:
    cpu = ROOT / "tests" / "hardware" / "inventories" / "cpu-2.json"
    assert "float32: twice the checkpoint's size" in tide("plan", "--inventory", cpu).stdout
    assert "float32" in tide("plan", "--inventory", cpu, "--target", "llama-3.1-8b-instruct").stderr
    assert "float32" not in tide("plan", "--inventory", "1xH200", "--target", "qwen3-8b").stdout


@pytest.mark.parametrize(("bfloat16", "dtype", "weights"), [(True, "bfloat16", 1), (False, "float32", 2)])
def test_note_memory_and_command_of_a_cpu_agree(tmp_path: Path, bfloat16: bool, dtype: str, weights: int) -> None:
    machine = json.loads((ROOT / "tests" / "hardware" / "inventories" / "cpu-2.json").read_text())
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(machine | {"bfloat16": bfloat16}))
    made = json.loads(tide("plan", "--inventory", file, "--state-dir", tmp_path, "--json").stdout)
    argv = made["commands"]["engine"]["argv"]
    assert (made["dtype"], argv[argv.index("--dtype") + 1]) == (dtype, dtype)
    sizes = {part["name"]: part["size"] for part in made["memory"][0]["parts"]}
    assert sizes["target weights"] == weights * 269_060_552
    assert any("float32" in note for note in made["notes"]) is not bfloat16


def test_targets_are_listed(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in json.loads(tide("targets", "--json", HF_HOME=str(tmp_path)).stdout)}
    assert list(rows) == list(known_targets())
    assert [row["here"] for row in rows.values()] == ["no"] * 5 + ["embedded"]
    assert rows["gpt-oss-120b"]["parameters"] == pytest.approx(117e9, rel=0.01)  # OpenAI's model card
    assert rows["qwen3-30b-a3b"]["parameters"] == pytest.approx(30.5e9, rel=0.01)  # Qwen's
    assert rows["smollm2-135m"]["draft"] is None
    assert all(row["gpu_memory"] > known_targets()[name].shape.weight_bytes for name, row in rows.items())
    assert "a fresh one" in tide("targets", HF_HOME=str(tmp_path)).stdout


def test_gpus_tell_the_room_on_the_disk() -> None:
    assert json.loads(tide("gpus", "--json").stdout)["disk_free"] > 0


@pytest.mark.parametrize(("command", "words"), [("ls", "no versions yet"), ("gc", "nothing to remove")])
def test_empty_lists_say_so(tmp_path: Path, command: str, words: str) -> None:
    done = tide("drafts", command, "--state-dir", tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(words)


@pytest.mark.parametrize("followed", [["events", "-f"], ["logs", "-f", "engine"]])
def test_a_follower_says_that_nothing_runs_and_waits(tmp_path: Path, followed: list[str]) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "engine.log").write_text("the end\n")
    command = [sys.executable, "-m", "tide_cli", *followed, "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as follower:
        try:
            assert "waiting for one" in follower.stderr.readline()
            assert follower.poll() is None
        finally:
            follower.terminate()
    assert not is_locked(tmp_path / "lock")


def test_a_workload_that_is_not_there_names_no_option_of_another_command() -> None:
    done = tide("replay", "nofile")
    assert done.returncode == 2
    assert "--workload" not in done.stderr
    assert "Missing argument 'WORKLOAD'" in tide("replay").stderr


def test_usage_has_nothing_that_looks_unfilled() -> None:
    for command in (["replay"], ["drafts", "diff"], ["spool", "show"], ["bench", "compare"]):
        assert not set("{}") & set(tide(*command, "--help").stdout.split("\n")[0])


@pytest.mark.parametrize("group", [[], ["bench"], ["train"], ["drafts"], ["spool"]])
def test_every_command_fits_into_a_line_of_help(group: list[str]) -> None:
    listed = tide(*group, "--help", COLUMNS="80").stdout.split("Commands:")[1]
    assert listed.strip()
    assert "..." not in listed


def test_a_closed_input_is_told_of_yes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    holds_none = SimpleNamespace(samples=list, close=lambda: None)
    monkeypatch.setattr("tide_cli.spool.index.SpoolIndex.open", lambda folder: holds_none)
    monkeypatch.setattr(sys, "stdin", None)  # what Python makes of `<&-`
    with pytest.raises(UsageError) as refused:
        _confirmed(Paths.under(tmp_path, tmp_path), Which(everything=True))
    assert refused.value.remedy == "the same command with --yes"


def test_lines_of_others_do_nothing_to_a_terminal() -> None:
    assert printable_lines("a\x1b[2J\r\nb\rc\n\td") == "a\\x1b[2J\nb\nc\n\td"
    assert [many(1, "sample"), many(0, "sample"), many(1200, "process")] == ["1 sample", "0 samples", "1,200 processes"]


def test_parameters_follow_from_the_bytes() -> None:
    shape = TargetShape(1, 32, 64, 2, 1, 16, 100, 64, weight_bytes=1000, element_bytes=4)
    assert (shape.parameters, shape.stored_as) == (250, "float32")
