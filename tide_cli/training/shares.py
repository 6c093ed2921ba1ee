"""One optimiser step over the shares of several processes: what each counts, and the same step by one process."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch

from tide_cli.spool.samples import Sample
from tide_cli.training.trainer import NO_GRADIENT, DraftTrainer, Gradient, Step


def gradient_weights(gradients: Sequence[Gradient]) -> list[float]:
    """By which the sum is the gradient of one batch of all samples; [] where there is none.

    SpecForge divides the loss by the places of the padded batch.
    """
    places = sum(one.rows for one in gradients) * max(one.longest for one in gradients)
    return [one.rows * one.longest / places for one in gradients] if places else []


def whole_step(gradients: Sequence[Gradient], weights: Sequence[float]) -> Step:
    """The step of the weighted sum."""
    loss = sum(weight * one.loss for weight, one in zip(weights, gradients, strict=True))
    return Step(loss, sum(one.tokens for one in gradients))


def own_share(trainer: DraftTrainer, samples: Sequence[Sample]) -> Gradient | None:
    """Of this process's samples, of which there may be none; None, and no gradient, where the memory does not do."""
    trainer.forget_gradients()
    try:
        return trainer.gradient(samples) if samples else NO_GRADIENT
    except torch.OutOfMemoryError:
        traceback.print_exc()
    trainer.forget_gradients()
    torch.cuda.empty_cache()  # for the next share may want other sizes
    return None


@torch.no_grad()
def step_in_turns(trainer: DraftTrainer, shares: Sequence[Sequence[Sample]]) -> Step:
    """What processes with these shares, not all of them empty, would do together, in the memory of one."""
    gradients, kept = [], []
    for samples in shares:
        trainer.forget_gradients()
        with torch.enable_grad():
            gradients.append(trainer.gradient(samples) if samples else NO_GRADIENT)
        kept.append([gradient.clone() for gradient in trainer.gradients()])
    weights = gradient_weights(gradients)
    for total, *parts in zip(trainer.gradients(), *kept, strict=True):
        total.zero_()
        for part, weight in zip(parts, weights, strict=True):
            total.add_(part.mul_(weight))
    trainer.apply_gradients()
    return whole_step(gradients, weights)
