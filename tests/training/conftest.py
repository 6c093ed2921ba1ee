"""Fixtures of the training tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_target import Target, make_target

from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import publish_day_zero


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return make_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def config(target: Target, tmp_path: Path) -> TrainingConfig:
    """Folders below tmp_path; a draft vocabulary that leaves some of the target's tokens out."""
    return TrainingConfig(
        target=target.folder,
        target_name="tiny",
        target_revision="r1",
        spool=tmp_path / "spool",
        drafts=tmp_path / "drafts",
        state=tmp_path / "state",
        reservoir_size=2**20,
        device="cpu",
        threads=1,
        dtype="float32",
        draft_vocab_size=280,
        ttt_length=3,
        learning_rate=1e-2,
        batch_tokens=128,
        max_sample_tokens=128,
        cycle_seconds=3.0,
        replay_share=0.25,
        gate_samples=16,
        gate_margin=0.02,
        gate_confidence=0.9,
        gate_floor=0.5,
        draft_steps=3,
        seed=0,
    )


@pytest.fixture
def day_zero(config: TrainingConfig) -> Path:
    """The folder of a published v0000."""
    assert publish_day_zero(config) == 0
    return config.drafts / "v0000"
