"""How fast a draft is trained and judged, from its arithmetic.

A token costs, for each depth of the draft's chain, 2 operations a weight forward and 4 backward, and the teacher's
logits over the whole vocabulary once. On a GPU a step also reads and writes masters, moments and gradients, and starts
some hundred kernels a depth. None of the GPU figures has been measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tide_cli.simulation.gpu_figures import GpuFigures
from tide_cli.simulation.machine import BANDWIDTH_USED
from tide_cli.targets.shape import DraftShape, TargetShape

TRAINING_USED = 0.35  # part of a GPU's operations that small layers in bfloat16 come to
_STEP = 20e-3  # seconds of a step that are neither arithmetic nor memory
# Adam on float32 masters: masters and two moments read and written, gradients read, bfloat16 weights written
_OPTIMISER_BYTES = 4 * 6 + 4 + 2
# Operations/s of a CPU core by this count of operations: what 380 to 430 tokens/s of the embedded target's draft on one
# core (measured) come to, at 3 depths.
CORE_FLOPS = 110e9


class Trainer(Protocol):
    """Tokens/s in training, and seconds that judging takes for so many rows walked by one draft."""

    def tokens_per_second(self, batch_tokens: int) -> float: ...

    def walk_seconds(self, rows: int) -> float: ...


@dataclass(frozen=True)
class _Draft:
    target: TargetShape
    draft: DraftShape
    depths: int

    @property
    def token_flops(self) -> float:
        """Of a token in training."""
        return 6 * self.depths * self.draft.parameters + 2 * self.target.vocab_size * self.target.hidden_size

    @property
    def walk_flops(self) -> float:
        """Of a row that is walked: a round may start at any of them."""
        return 2 * self.depths * self.draft.parameters


@dataclass(frozen=True)
class GpuTrainer(_Draft):
    """On one GPU. depths: of the chain that is trained."""

    gpu: GpuFigures

    def tokens_per_second(self, batch_tokens: int) -> float:
        arithmetic = batch_tokens * self.token_flops / (self.gpu.flops * TRAINING_USED)
        optimiser = _OPTIMISER_BYTES * self.draft.parameters / (self.gpu.bandwidth * BANDWIDTH_USED)
        return batch_tokens / (arithmetic + optimiser + _STEP)

    def walk_seconds(self, rows: int) -> float:
        return rows * self.walk_flops / (self.gpu.flops * TRAINING_USED)


@dataclass(frozen=True)
class CpuTrainer(_Draft):
    """On so many cores."""

    cores: int

    def tokens_per_second(self, batch_tokens: int) -> float:
        return self.cores * CORE_FLOPS / self.token_flops

    def walk_seconds(self, rows: int) -> float:
        return rows * self.walk_flops / (self.cores * CORE_FLOPS)
