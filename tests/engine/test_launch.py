"""The engine's command line and the plugin's configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tide_cli.engine.launch import STAND_INS, engine_command
from tide_cli.engine.plugin.config import ENVIRONMENT_VARIABLE, EngineConfig
from tide_cli.hardware.plan import Partition, Plan
from tide_cli.settings import load_settings
from tide_cli.targets import PreparedTarget

CPU = Plan(Partition((0,)), Partition((1,)))
GPUS = Plan(Partition((0, 1), gpus=(0, 1)), Partition((2, 3), gpus=(2,)))


def command(tmp_path: Path, plan: Plan = CPU, **settings):
    chosen = load_settings({"state_dir": tmp_path, "cache_dir": tmp_path, "port": 31999, **settings})
    chosen.paths.run.mkdir(exist_ok=True)
    target = PreparedTarget("some-target", tmp_path / "model", "r1", 576, 49152, 30, 8192, ("--tool-call-parser", "x"))
    return engine_command(chosen, target, plan, served_version=7, run="run1", spool_size=2**20)


def value(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_speculation_with_the_served_draft(tmp_path: Path) -> None:
    argv = command(tmp_path).argv
    assert value(argv, "--speculative-draft-model-path") == str(tmp_path / "drafts" / "v0007")
    assert value(argv, "--speculative-num-steps") == "3"
    assert value(argv, "--speculative-num-draft-tokens") == "4"
    assert value(argv, "--speculative-eagle-topk") == "1"
    assert value(argv, "--tool-call-parser") == "x"


def test_the_users_arguments_stand_last(tmp_path: Path) -> None:
    argv = command(tmp_path, sglang_arguments=["--tool-call-parser", "y"]).argv
    assert argv[-2:] == ["--tool-call-parser", "y"]


def test_the_plugin_reads_what_the_launcher_wrote(tmp_path: Path) -> None:
    started = command(tmp_path, max_sample_tokens=99)
    config = EngineConfig.read(Path(started.env[ENVIRONMENT_VARIABLE]))
    assert (config.served_version, config.run, config.hidden_size) == (7, "run1", 576)
    assert (config.spool, config.drafts) == (tmp_path / "spool", tmp_path / "drafts")
    assert config.max_sample_tokens == 99
    assert config.capture


@pytest.mark.parametrize(
    ("settings", "captures"), [({}, True), ({"capture": False}, False), ({"speculation": False}, False)]
)
def test_nothing_is_captured_where_it_is_off(tmp_path: Path, settings: dict, captures: bool) -> None:
    started = command(tmp_path, **settings)
    assert EngineConfig.read(Path(started.env[ENVIRONMENT_VARIABLE])).capture is captures


def test_the_policy_chooses_among_all_numbers_of_steps(tmp_path: Path) -> None:
    started = command(tmp_path, draft_steps=2)
    candidates = json.loads(Path(value(started.argv, "--speculative-adaptive-config")).read_text())
    assert candidates == {"1": {"candidate_steps": [0, 1, 2]}}
    config = EngineConfig.read(Path(started.env[ENVIRONMENT_VARIABLE]))
    assert (config.adaptive, config.draft_steps, config.profiles) == (True, 2, tmp_path / "profiles")


@pytest.mark.parametrize(("mode", "steps"), [("on", "3"), (5, "5"), ("2", "2")])
def test_a_fixed_number_of_steps_needs_no_policy(tmp_path: Path, mode: str | int, steps: str) -> None:
    started = command(tmp_path, speculation=mode)
    assert value(started.argv, "--speculative-num-steps") == steps
    assert "--speculative-adaptive" not in started.argv
    assert not EngineConfig.read(Path(started.env[ENVIRONMENT_VARIABLE])).adaptive


def test_plain_decoding_has_no_draft(tmp_path: Path) -> None:
    assert not [word for word in command(tmp_path, speculation=False).argv if "speculative" in word]


def test_a_cpu_gets_the_stand_ins_and_its_own_backend(tmp_path: Path) -> None:
    started = command(tmp_path)
    assert started.env["PYTHONPATH"].split(":")[0] == str(STAND_INS)
    assert value(started.argv, "--device") == "cpu"
    assert value(started.argv, "--attention-backend") == "torch_native"


def test_gpus_get_neither(tmp_path: Path) -> None:
    started = command(tmp_path, GPUS)
    assert "PYTHONPATH" not in started.env
    assert "--device" not in started.argv
    assert value(started.argv, "--tp-size") == "2"
    assert value(started.argv, "--dtype") == "bfloat16"
    # without figures in the plan SGLang uses its own
    assert not {"--max-total-tokens", "--mem-fraction-static", "--chunked-prefill-size"} & set(started.argv)


def test_a_model_package_of_the_users_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(tmp_path).env["SGLANG_EXTERNAL_MODEL_PACKAGE"] == "tide_cli.engine.architectures"
    monkeypatch.setenv("SGLANG_EXTERNAL_MODEL_PACKAGE", "mine")
    assert "SGLANG_EXTERNAL_MODEL_PACKAGE" not in command(tmp_path).env


def test_the_figures_of_a_plan_are_passed_on(tmp_path: Path) -> None:
    planned = replace(GPUS, max_total_tokens=4096, mem_fraction_static=0.8, prefill_tokens=2048)
    started = command(tmp_path, planned)
    assert value(started.argv, "--max-total-tokens") == "4096"
    assert value(started.argv, "--mem-fraction-static") == "0.800"
    assert value(started.argv, "--chunked-prefill-size") == "2048"
    # the plan reckons with the fullest GPU, so SGLang need not refuse unequal ones
    assert started.env["SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"] == "false"


def test_a_shown_command_leaves_the_disk_alone(tmp_path: Path) -> None:
    chosen = load_settings({"state_dir": tmp_path / "state", "cache_dir": tmp_path})
    target = PreparedTarget("t", tmp_path, "r1", 576, 49152, 30, 8192)
    engine_command(chosen, target, CPU, served_version=0, run="r", spool_size=1, write=False)
    assert list(tmp_path.iterdir()) == []
