"""The objective on gathered rows against SpecForge's own, which is evaluated everywhere and masked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from specforge.algorithms.eagle3 import model as specforge_model
from tiny_target import Target
from torch import Tensor

from tide_cli.drafts.tensors import read_draft
from tide_cli.training.batches import collate
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import build_draft, load_draft
from tide_cli.training.eagle3_rows import GeneratedRowsEagle3


class _PlainLogSoftmaxLoss:
    """What SpecForge's Triton kernel computes."""

    @staticmethod
    def apply(logits: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
        losses = -(teacher * F.log_softmax(logits.float(), -1)).sum(-1)
        return (losses * mask.squeeze(-1).bool()).mean()


def objective(model: torch.nn.Module, batch: dict[str, Tensor], head: Tensor) -> list[Tensor]:
    """The loss of each depth, from collated samples that are not yet shifted."""
    losses, *_ = model(
        input_ids=F.pad(batch["input_ids"][:, 1:], (0, 1)),
        attention_mask=batch["attention_mask"],
        target=None,
        loss_mask=batch["loss_mask"][..., None],
        hidden_states=batch["hidden_state"],
        target_hidden_for_compact=F.pad(batch["target"][:, 1:], (0, 0, 0, 1)),
        target_head_weight=head,
    )
    return losses


def test_loss_and_gradient_are_those_of_specforge(
    target: Target, config: TrainingConfig, day_zero: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specforge_model, "LogSoftmaxLoss", _PlainLogSoftmaxLoss)
    samples = target.samples(4)
    batch = collate(samples, 99, torch.float32)
    # SpecForge counts rows whose following token it can only guess; compare where both know it
    for row, sample in enumerate(samples):
        batch["loss_mask"][row, len(sample.tokens) - 2 :] = 0
    embedding, head = (layer.weight.detach() for layer in (target.model.model.embed_tokens, target.model.lm_head))
    losses, gradients = [], []
    for kind in (specforge_model.OnlineEagle3Model, GeneratedRowsEagle3):
        draft = build_draft(day_zero / "config.json", embedding, dtype=torch.float32, attention="sdpa")
        load_draft(draft, read_draft(day_zero))
        model = kind(draft, length=3, attention_backend="sdpa")
        found = objective(model, batch, head)
        sum(found).backward()
        losses.append(torch.stack(found).detach())
        gradients.append({name: p.grad for name, p in draft.named_parameters() if p.grad is not None})
    assert losses[0].min() > 0.1
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=2e-3, atol=1e-5, msg=name)


@torch.no_grad()  # on a CPU flex attention has no backward pass
def test_flex_attention_as_on_a_gpu_gives_the_same_loss(target: Target, day_zero: Path) -> None:
    batch = collate(target.samples(4), 99, torch.float32)
    assert batch["attention_mask"].min() == 0  # samples of several lengths
    embedding, head = (layer.weight.detach() for layer in (target.model.model.embed_tokens, target.model.lm_head))
    losses = []
    for attention in ("sdpa", "flex_attention"):
        draft = build_draft(day_zero / "config.json", embedding, dtype=torch.float32, attention=attention)
        load_draft(draft, read_draft(day_zero))
        model = GeneratedRowsEagle3(draft, length=3, attention_backend=attention)
        losses.append(torch.stack(objective(model, batch, head)))
    assert losses[0].min() > 0.1
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
