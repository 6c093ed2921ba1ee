"""`tide simulate` as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, tide

from tide_cli.settings import Settings
from tide_cli.simulation.options import Options

CPU = ROOT / "tests" / "hardware" / "inventories" / "cpu-2.json"
H200 = ROOT / "configs" / "inventories" / "1xH200.json"


def simulate(*arguments: object, inventory: Path = H200) -> subprocess.CompletedProcess[str]:
    return tide("simulate", "--inventory", inventory, "--target", "gpt-oss-120b", *arguments)


def test_answers_as_json(tmp_path: Path) -> None:
    answer = simulate("--duration", 200, "--json", "--cycle-seconds", 30, "--state-dir", tmp_path / "state")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    kinds = [split["trainer"] for split in found["splits"]]
    assert (found["target"], kinds) == ("gpt-oss-120b", ["shared", "off", "cpu"])
    shared, off, _ = found["splits"]
    assert shared["planned"]
    assert off["payback"] is None
    assert off["events"] == []
    assert shared["swaps"][0]["version"] == 1
    assert {"cycle", "gate", "published", "swap"} <= {event["kind"] for event in shared["events"]}
    assert shared["payback"]["unit"] == "tokens"
    for split in found["splits"]:
        requests = split["requests"]
        assert requests["arrived"] == requests["ended"] + requests["in_system"] + requests["refused"]
    ages = [one["oldest"] for one in found["spool"]["sizes"]]
    assert ages == sorted(ages)
    assert not (tmp_path / "state").exists()


def test_answers_as_text() -> None:
    answer = simulate("--duration", 120, "--events", "--rate", 1)
    assert "of these, lets clients wait least" in answer.stdout
    assert "cycle: training:" in answer.stdout


def test_a_workload_and_a_written_spool(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{place / 2},{50 + place},{20 + place}\n" for place in range(60))
    trace.write_text(f"timestamp_s,input_tokens,output_tokens\n{rows}")
    answer = simulate("--workload", trace, "--write-spool", "64MiB", "--json")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["written"]["agrees"]
    # every row but the last token's: 8 · 2,880 bytes
    assert found["written"]["bytes"] == sum(69 + 2 * place for place in range(60)) * 8 * 2880
    assert found["splits"][0]["requests"] == {"arrived": 60, "refused": 0, "ended": 60, "in_system": 0}


def test_what_is_wrong_with_a_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4, "hidden_size": 64}')
    (tmp_path / "model.safetensors").write_bytes(bytes(8))
    answer = tide("simulate", "--inventory", H200, "--target", tmp_path)
    assert "cannot be planned for: config.json: num_attention_heads is missing" in answer.stderr


def test_an_ended_simulation_leaves_no_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tide_cli", "simulate", "--inventory", H200, "--target", "gpt-oss-120b"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([*command, "--write-spool", "64MiB", "--duration", "100000"], env=environment)
    while not list(tmp_path.glob("tide-simulate-*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 130
    assert list(tmp_path.glob("tide-simulate-*")) == []


def test_the_defaults_are_those_of_the_options() -> None:
    """Stated twice, so that the command line need not load the simulation for its help."""
    answer = simulate("--help").stdout.replace("\n", " ")
    for name in ("speed", "input_tokens", "output_tokens", "duration", "first_length", "reachable_length"):
        default = getattr(Options(), name)
        assert f"default: {default}" in " ".join(answer.split()), name
    assert "max_running_requests" in Settings.model_fields


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", 1, "--concurrency", 2], "--rate and --concurrency contradict each other"),
        (["--speed", 2], "--speed is that of a --workload"),
        (["--write-spool", "-1"], "--write-spool -1: "),
        (["--rate", 0], "--rate 0: it takes a number above 0"),
        (["--duration", -1], "--duration -1"),
        (["--rate", "1e308"], "'--rate': it takes numbers up to 1000"),
        (["--concurrency", 2**31], "'--concurrency': it takes numbers up to 100000"),
        (["--input-tokens", "9999999999999999"], "'--input-tokens': it takes numbers up to 10000000"),
        (["--output-tokens", 10**9], "'--output-tokens': it takes numbers up to 10000000"),
        (["--bandwidth", 900], "--bandwidth and --tflops go together"),
        (["--domains", 2], "--domains and --shift-every go together"),
        (["--trainer-share", 1], "--trainer-share 1"),
        (["--first-length", 3, "--reachable-length", 2], "--first-length 3 and --reachable-length 2 cannot be"),
        (["--reachable-length", 4], "less than 4"),
        (["--profile", "/nowhere/profile.json"], "cannot read the profile"),
        (["--profile", H200], "cannot read the profile"),
        (["--workload", "/nowhere/trace.csv"], "cannot read the trace"),
        (["--profile", "/dev/zero"], "cannot read the profile /dev/zero: it has more than 64 MiB"),
        (["--profile", "PIPE"], "cannot read the profile"),
        (["--workload", "PIPE"], "cannot read the trace"),
        (["--inventory", "PIPE"], "cannot read the inventory"),
        (["--workload", "/dev/zero"], "cannot read the trace /dev/zero: it has more than 256 MiB"),
        (["--write-spool", "5GiB"], "--write-spool 5GiB is too large"),
        (["--target", "somebody/else"], "the shape of somebody--else is not known here"),
    ],
)
def test_wrong_usage_is_said_in_two_lines(tmp_path: Path, arguments: list[object], words: str) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    answer = simulate(*(pipe if argument == "PIPE" else argument for argument in arguments))
    assert answer.returncode == 2
    assert words in answer.stderr
    assert len(answer.stderr.splitlines()) <= 2
    assert answer.stdout == ""


def test_a_cpu_needs_a_profile() -> None:
    answer = tide("simulate", "--inventory", CPU)
    assert answer.returncode == 2
    assert f"keeps the file in {json.loads(tide('paths', '--json').stdout)['profiles']}; " in answer.stderr
    assert "--profile" in answer.stderr


def test_the_planned_and_the_best_split_are_named_with_the_options_of_the_best() -> None:
    """A trainer on the cores costs nothing before its first draft, one on the only GPU half of the serving."""
    arguments = ("--duration", 400)
    found = json.loads(simulate(*arguments, "--json").stdout)
    planned, plain, cpu = found["splits"]
    assert (found["best"], cpu["options"], plain["options"]) == (2, ["--train-gpus", "cpu"], ["--no-training"])
    assert planned["options"] == []
    # the same time for all of them, the time until the first draft of any
    assert cpu["early_tok_s"] == plain["early_tok_s"] > planned["early_tok_s"]
    text = simulate(*arguments).stdout
    rows = text.splitlines()
    assert [row.split("GPU")[0].strip() for row in rows[1:4]] == ["planned", "", "best"]
    assert rows[3].endswith("from its first draft")
    assert "core 24-47 trains, with `--train-gpus cpu`" in text
    chosen = simulate(*arguments, *cpu["options"]).stdout.splitlines()
    assert chosen[1].startswith("planned, best  GPU 0   core 24-47")
    assert chosen[4].endswith(", as planned")


def test_no_torch_is_imported() -> None:
    code = f"""
import sys
from tide_cli.cli import main
try:
    main(["simulate", "--target", "gpt-oss-120b", "--inventory", {str(H200)!r}, "--duration", "10"])
except SystemExit:
    print("torch" in sys.modules, file=sys.stderr)
"""
    answer = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert answer.stderr.splitlines()[-1] == "False"
