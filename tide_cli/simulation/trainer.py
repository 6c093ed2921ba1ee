"""How fast a draft is trained and judged, from its arithmetic.

A row costs, for each depth of the draft's chain, 2 operations a weight forward and 4 backward; the head's are spent on
rows of generated tokens alone, and the teacher's logits over the draft's vocabulary once on each of those. On a GPU a
step also reads and writes masters, moments and gradients, and starts some hundred kernels a depth. Several GPUs take a
batch each, and add up their gradients after it. None of the GPU figures has been measured.
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
# bytes/s at which GPUs add up bfloat16 gradients, each of which goes round twice: over NVLink or XGMI, PCI Express
_EXCHANGE_FAST, _EXCHANGE_SLOW = 150e9, 20e9
# Operations/s of a CPU core by this count: what 620 to 780 tokens/s (measured) of the embedded target's draft come to,
# on one core, at 3 depths and with half of the rows generated. Of several cores so large a part counts.
CORE_FLOPS, SEVERAL_CORES = 110e9, 0.5


class Trainer(Protocol):
    """Tokens/s in training, `generated` being the part of generated ones among them; seconds that judging takes for so
    many rows walked by one draft."""

    def tokens_per_second(self, batch_tokens: int, generated: float) -> float: ...

    def walk_seconds(self, rows: int) -> float: ...


@dataclass(frozen=True)
class _Draft:
    target: TargetShape
    draft: DraftShape
    depths: int

    def token_flops(self, generated: float) -> float:
        """Of a token in training."""
        head = self.draft.vocab_size * self.draft.hidden_size
        return 6 * self.depths * (self.draft.parameters - head + generated * head) + 2 * generated * head

    @property
    def walk_flops(self) -> float:
        """Of a row that is walked: a round may start at any of them."""
        return 2 * self.depths * self.draft.parameters


@dataclass(frozen=True)
class GpuTrainer(_Draft):
    """On so many equal GPUs, all of them joined fast or not. depths: of the chain that is trained."""

    gpu: GpuFigures
    gpus: int = 1
    fast: bool = True

    def tokens_per_second(self, batch_tokens: int, generated: float) -> float:
        arithmetic = batch_tokens * self.token_flops(generated) / (self.gpu.flops * TRAINING_USED)
        optimiser = _OPTIMISER_BYTES * self.draft.parameters / (self.gpu.bandwidth * BANDWIDTH_USED)
        exchanged = 4 * self.draft.parameters * (self.gpus - 1) / self.gpus
        exchange = exchanged / (_EXCHANGE_FAST if self.fast else _EXCHANGE_SLOW)
        return self.gpus * batch_tokens / (arithmetic + optimiser + _STEP + exchange)

    def walk_seconds(self, rows: int) -> float:
        return rows * self.walk_flops / (self.gpu.flops * TRAINING_USED)


@dataclass(frozen=True)
class CpuTrainer(_Draft):
    """On so many cores."""

    cores: int

    @property
    def flops(self) -> float:
        return CORE_FLOPS * (1 if self.cores == 1 else self.cores * SEVERAL_CORES)

    def tokens_per_second(self, batch_tokens: int, generated: float) -> float:
        return self.flops / self.token_flops(generated)

    def walk_seconds(self, rows: int) -> float:
        return rows * self.walk_flops / self.flops
