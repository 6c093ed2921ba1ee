from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_target import Target

from tide_cli.training.config import TrainingConfig
from tide_cli.training.state import Progress, load_state, read_progress, save_state
from tide_cli.training.trainer import DraftTrainer


def test_a_restart_goes_on_as_if_nothing_had_happened(target: Target, config: TrainingConfig, day_zero: Path) -> None:
    samples = target.samples(4)
    first = DraftTrainer(config, day_zero)
    for _ in range(15):
        first.step(samples)
    progress = Progress(parent=0, cycle=3, steps=15, samples=60, tokens=999)
    save_state(config.state, first, progress)
    second = DraftTrainer(config, day_zero)
    assert load_state(config.state, second)
    assert read_progress(config.state) == progress
    for trainer in (first, second):
        trainer.step(samples)
    for name, tensor in first.tensors().items():
        assert torch.equal(second.tensors()[name], tensor), name
    assert second.optimizer.get_learning_rate() == pytest.approx(config.learning_rate)


def test_state_of_another_draft_or_a_damaged_one_is_refused(
    target: Target, config: TrainingConfig, day_zero: Path
) -> None:
    trainer = DraftTrainer(config, day_zero)
    trainer.step(target.samples(2))
    before = trainer.tensors()
    assert not load_state(config.state, trainer)
    assert read_progress(config.state) is None
    save_state(config.state, trainer, Progress(parent=0))
    file = config.state / "trainer.safetensors"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:-100])
    assert not load_state(config.state, trainer)
    assert read_progress(config.state) is None
    assert all(torch.equal(trainer.tensors()[name], tensor) for name, tensor in before.items())


def test_bfloat16_publication_keeps_fp32_masters(target: Target, config: TrainingConfig, day_zero: Path) -> None:
    trainer = DraftTrainer(replace(config, dtype="bfloat16"), day_zero)
    trainer.step(target.samples(2))
    weight = trainer.tensors()["fc.weight"]
    assert weight.dtype == torch.float32
    assert not torch.equal(weight, weight.bfloat16().float())
