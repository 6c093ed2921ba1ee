"""Settings of what is measured: the user's own, from TIDE_* and the settings file, before the bench's defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tide_cli.bench.adapt_options import AdaptOptions
from tide_cli.bench.arms import short_cycles
from tide_cli.bench.engines import bench_settings, with_defaults
from tide_cli.cli import main
from tide_cli.errors import TideError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings file."""
    made = tmp_path / "tide.toml"
    made.write_text("")
    monkeypatch.setenv("TIDE_CONFIG", str(made))
    return made


def test_a_spool_of_the_users_size(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(**chosen: Any) -> tuple[int | None, int | None]:
        made = bench_settings(tmp_path, **chosen)
        return made.spool_size, made.reservoir_size

    assert sizes() == (2**29, 2**28)
    assert sizes(spool_size=2**26) == (2**26, None)
    file.write_text('spool_size = "2GiB"')
    assert sizes() == (2**31, None)  # a ring of that size keeps enough old samples
    monkeypatch.setenv("TIDE_SPOOL_SIZE", "1GiB")
    assert sizes() == (2**30, None)


def test_what_serves_the_users_own_appliance_is_left_to_it(file: Path, tmp_path: Path) -> None:
    file.write_text('metrics_port = 9400\non_event = "say"\ndraft_steps = 2')
    made = bench_settings(tmp_path)
    assert (made.metrics_port, made.on_event, made.draft_steps) == (None, None, 2)


def test_defaults_yield_to_what_is_set_anywhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"dtype": "float32", "speculation": "on", "seed": 3}
    assert with_defaults(defaults, {"dtype": None, "seed": 5}) == {"dtype": "float32", "speculation": "on", "seed": 5}
    file.write_text('dtype = "bfloat16"')
    monkeypatch.setenv("TIDE_SPECULATION", "2")
    assert with_defaults(defaults, {"dtype": None}) == {"seed": 3}
    file.write_text("cycle_seconds = 7")
    assert "cycle_seconds" not in short_cycles()
    assert short_cycles(cycle_seconds=9.0)["cycle_seconds"] == 9.0
    assert short_cycles()["cycle_tokens"] == 3000


PARTS = [
    ("capture", "tide_cli.bench.capture.CaptureBench", "auto"),
    ("swap", "tide_cli.bench.swap.SwapBench", "float32"),  # texts are compared
    ("profile", "tide_cli.bench.profile.ProfileBench", "auto"),
    ("train", "tide_cli.bench.train.TrainBench", "auto"),
]


@pytest.mark.parametrize(("part", "bench", "precision"), PARTS)
def test_a_part_is_measured_with_the_users_target_and_says_so(
    part: str,
    bench: str,
    precision: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings: list[dict[str, Any]] = []

    def run(bench: Any, progress: object) -> dict[str, Any]:
        settings.append({name: value for name, value in bench.settings.items() if value is not None})
        return {
            "swaps": 1,
            "on": {},
            "off": {},
            "batches": [],
            "acceptance_length": {},
            "bytes_per_token": {},
            "stored_bytes": {},
        }

    def options(*arguments: str) -> dict[str, Any]:
        with pytest.raises(SystemExit):
            main(["bench", part, "--json", *arguments])
        return dict(json.loads(capsys.readouterr().out)[part]["options"])

    monkeypatch.setattr(f"{bench}.run", run)
    plain = options()
    assert (plain["settings"]["target"], plain["settings"]["dtype"]) == ("smollm2-135m", precision)
    file.write_text('target = "qwen3-8b"\ndraft = "X/qwen-eagle3"')
    monkeypatch.setenv("TIDE_DTYPE", "bfloat16")
    own = options()["settings"]
    assert (own["target"], own["draft"], own["dtype"]) == ("qwen3-8b", "X/qwen-eagle3", "bfloat16")
    assert not {"target", "draft", "dtype"} & settings[-1].keys()  # nothing that would stand above the user's own
    assert options("--target", "qwen3-30b-a3b")["settings"]["target"] == "qwen3-30b-a3b"
    assert not {"port", "state_dir", "speculation"} & own.keys()
    assert plain["rounds"] > 1
    if part != "train":
        again, other = options("--rounds", "1"), options("--seed", "1", "--max-tokens", "32")
        assert again["rounds"] == 1
        assert again["prompts_sha256"] == plain["prompts_sha256"] != other["prompts_sha256"]
        assert (other["max_tokens"], other["seed"], other["workload"]) == (32, 1, None)


def test_a_shift_is_measured_with_the_users_settings(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[AdaptOptions] = []

    def run(options: AdaptOptions, *_: object) -> None:
        asked.append(options)
        raise TideError("measured")

    def adapt(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main(["bench", "adapt", "--workload", str(tmp_path), "--domains", "code", *arguments])
        return capsys.readouterr().err

    monkeypatch.setattr("tide_cli.bench.adapt.run_adapt", run)
    assert "measured" in adapt()
    # as before flags had no defaults: a run that was begun then is gone on with
    assert dict(asked[-1].settings) == {"target": "smollm2-135m", "dtype": "auto", "speculation": "on", "seed": 0}
    file.write_text('target = "qwen3-8b"\nspeculation = 2\nseed = 7')
    adapt("--dtype", "float32", "--draft", "X/y")
    assert dict(asked[-1].settings) == {
        **{"target": "qwen3-8b", "dtype": "float32", "speculation": 2, "seed": 7},
        "draft": "X/y",
    }
    assert asked[-1].seed == 7
    adapt("--seed", "1", "--speculation", "on")
    assert (asked[-1].seed, dict(asked[-1].settings)["speculation"]) == (1, "on")
    begun = len(asked)
    file.write_text('speculation = "off"')
    assert "leaves nothing to adapt" in adapt()
    file.write_text('speculation = "auto"')
    assert "--with-policy adds nothing" in adapt("--with-policy")
    assert len(asked) == begun
