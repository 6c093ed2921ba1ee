"""Both trainers on a tiny target: each is really run, as a process of its own, and both see the same tokens."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from scripted_arms import Told
from tiny_target import HIDDEN, fill_spool, make_target, tiny_config

from tide_cli.bench.train import TrainBench, TrainContest
from tide_cli.bench.train_samples import exported, lengths, make_samples
from tide_cli.engine.launch import cpu_environment
from tide_cli.spool.export import export
from tide_cli.spool.reader import SpoolReader
from tide_cli.supervisor.family import Mark
from tide_cli.supervisor.process import ChildSpec
from tide_cli.supervisor.specs import trainer_argv
from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import publish_day_zero


def trainer(config: TrainingConfig, tmp_path: Path) -> ChildSpec:
    """How it is started, its first draft being there."""
    publish_day_zero(config)
    file = tmp_path / "training.json"
    file.write_text(config.to_json())
    env = {**os.environ, **cpu_environment(), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, *trainer_argv(file)]
    return ChildSpec(argv, env, sorted(os.sched_getaffinity(0)), tmp_path / "log", Mark.of(tmp_path, "trainer"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """It comes while target and draft are being made ready."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))  # a socket's path must be short
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    seen: list[Path] = []

    def prepare(workshop: object) -> None:
        seen.extend(folder.iterdir())
        os.kill(os.getpid(), number)

    monkeypatch.setattr("tide_cli.bench.train._prepare", prepare)
    before = signal.signal(number, lambda *_: None)  # pytest's own end is not what is tested
    try:
        with pytest.raises(KeyboardInterrupt):
            TrainBench(1, 2, 4, None, {"target": "smollm2-135m"}).run(Told())
    finally:
        signal.signal(number, before)
    assert len(seen) == 1
    folder.rmdir()  # which nothing but an empty one can be


@pytest.mark.timeout(240)
def test_both_trainers_run_on_the_same_samples(tmp_path: Path) -> None:
    config = tiny_config(make_target(tmp_path / "target"), tmp_path)
    files = make_samples(tmp_path / "made", 5, HIDDEN, range(280))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    told = Told()
    found = TrainContest(trainer(config, tmp_path), config, files, None, scratch, 1, 2, told).run()
    assert told.ticks == [(0, 2), (1, 2), (2, 2)]
    assert told.all[-2] == (2, 2)  # the line of the last round knows that it was the last
    assert found["tokens"] == sum(min(length, config.max_sample_tokens) for length in lengths(files))
    assert found["stored_tokens"] == sum(lengths(files))
    assert found["steps"] == found["specforge_steps"] == 5  # each sample fills a batch of so few tokens
    assert found["tokens_s"] > 0
    assert found["specforge_tokens_s"] > 0
    assert found["acceptance_length"] is None
    for side, more in (("tide", 4 + 8), ("specforge", 8 + 8)):  # beside the states: id and check, id and mask
        assert 1 <= found["bytes_per_token"][side] / (8 * HIDDEN + more) < 2  # headers and pages that are not full


@pytest.mark.timeout(240)
def test_what_both_have_learned_is_walked_on_samples_that_neither_has_seen(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target")
    config = tiny_config(target, tmp_path)
    fill_spool(config, target.samples(24))
    reader = SpoolReader.open(config.spool)
    export(reader, reader.samples(), tmp_path / "export", lambda done, of: None)
    files, held_out = exported(tmp_path / "export", HIDDEN)
    assert held_out is not None
    assert len(files) + len(list(held_out.rglob("*.ckpt"))) == 24
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    told = Told()
    found = TrainContest(trainer(config, tmp_path), config, files, held_out, scratch, 1, 6, told).run()
    assert told.ticks[-2:] == [(2, 3), (3, 3)]  # the walks are the third part
    length = found["acceptance_length"]
    assert found["held_out_samples"] == 24 - len(files) > 1
    assert 1 <= length["first"] < 1.5
    assert length["tide"] > length["first"] + 0.2
    assert length["specforge"] > length["first"] + 0.2
    low, high = found["length_interval"]
    assert low <= found["length_difference"] <= high
    assert low < high
    for draft, (low, high) in found["acceptance_intervals"].items():
        assert low <= length[draft] <= high
