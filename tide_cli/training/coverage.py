"""Before a cycle trains: whether the draft's vocabulary still covers what the target says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tide_cli.adaptation.vocabulary import better_vocabulary, coverage
from tide_cli.drafts.tensors import vocabulary_ids
from tide_cli.training.config import TrainingConfig
from tide_cli.training.day_zero import special_tokens
from tide_cli.training.material import Material
from tide_cli.training.trainer import DraftTrainer


@dataclass(frozen=True)
class Coverage:
    """Of the recent tokens, as shares: by the served draft, by the one in training. changed: tokens that are new to the
    latter; tokens: recent ones."""

    served: float
    candidate: float
    changed: int
    tokens: int


def follow_vocabulary(
    config: TrainingConfig, trainer: DraftTrainer, material: Material, served: dict[str, Any]
) -> Coverage | None:
    """Train on with a better vocabulary where it matters. None where there are no tokens to go by.

    served: tensors of the served version.
    """
    recent, old = material.token_counts(len(trainer.draft.t2d))
    now = coverage(vocabulary_ids(served["d2t"]).numpy(), recent)
    if now is None:
        return None
    special = special_tokens(config.target) if now < config.vocab_coverage else []
    share, before = config.replay_share if old.any() else 0.0, trainer.vocabulary
    better = better_vocabulary(
        before.numpy(), recent, old, old_share=share, special=special, wanted=config.vocab_coverage
    )
    if better is not None:
        trainer.change_vocabulary(torch.from_numpy(better))
    candidate = coverage(trainer.vocabulary.numpy(), recent) or 0.0
    changed = 0 if better is None else len(set(better.tolist()) - set(before.tolist()))
    return Coverage(now, candidate, changed, int(recent.sum()))
