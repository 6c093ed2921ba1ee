"""Both trainers on a tiny target: each is really run, as a process of its own, and both see the same tokens."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from tiny_target import HIDDEN, make_target, tiny_config

from tide_cli.bench.progress import Progress
from tide_cli.bench.train import TrainContest
from tide_cli.bench.train_samples import lengths, make_samples
from tide_cli.engine.launch import cpu_environment
from tide_cli.supervisor.family import Mark
from tide_cli.supervisor.process import ChildSpec
from tide_cli.supervisor.specs import trainer_argv
from tide_cli.training.day_zero import publish_day_zero


@pytest.mark.timeout(240)
def test_both_trainers_run_on_the_same_samples(tmp_path: Path) -> None:
    config = tiny_config(make_target(tmp_path / "target"), tmp_path)
    publish_day_zero(config)
    file = tmp_path / "training.json"
    file.write_text(config.to_json())
    env = {**os.environ, **cpu_environment(), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, *trainer_argv(file)]
    spec = ChildSpec(argv, env, sorted(os.sched_getaffinity(0)), tmp_path / "log", Mark.of(tmp_path, "trainer"))
    files = make_samples(tmp_path / "made", 5, HIDDEN, range(280))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = TrainContest(spec, config, files, scratch, 1, Progress()).run()
    assert found["tokens"] == sum(min(length, config.max_sample_tokens) for length in lengths(files))
    assert found["steps"] == found["specforge_steps"] == 5  # each sample fills a batch of so few tokens
    assert found["tokens_s"] > 0
    assert found["specforge_tokens_s"] > 0
