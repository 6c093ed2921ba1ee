"""SpecForge's EAGLE3 training step around one resident draft, with fp32 masters and Adam state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from specforge.modeling.target.target_head import TargetHead
from specforge.optimizer import BF16Optimizer
from specforge.runtime.contracts import TrainBatch
from specforge.training.backend import FSDPTrainingBackend, ParallelConfig
from specforge.training.controller import TrainerCore
from specforge.training.strategies.base import Eagle3TrainStrategy
from torch import Tensor

from tide_cli.drafts.describe import read_config as read_draft_config
from tide_cli.drafts.tensors import read_draft, vocabulary_ids
from tide_cli.spool.samples import Sample
from tide_cli.training.batches import collate
from tide_cli.training.config import TrainingConfig
from tide_cli.training.draft_model import BUFFERS, DTYPES, build_draft, load_draft, write_draft
from tide_cli.training.eagle3_rows import GeneratedRowsEagle3
from tide_cli.training.target_weights import TargetWeights

# The rate is constant after the warm-up: training has no end that a schedule could be stretched over.
WARMUP_STEPS, _ENDLESS = 10, 10**9
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class Step:
    """One optimiser step. tokens: rows of the batch, padding not counted."""

    loss: float
    tokens: int


@dataclass(frozen=True)
class Gradient:
    """Of the loss over one batch, left in the module. rows, longest: of the padded batch, by whose product the loss is
    divided; tokens: padding not counted."""

    loss: float
    rows: int
    longest: int
    tokens: int


NO_GRADIENT = Gradient(0.0, rows=0, longest=0, tokens=0)


class _Head(TargetHead):
    """SpecForge's target head around a weight [V, H] that is already there; its own way of reading one is narrower."""

    def __init__(self, weight: Tensor) -> None:
        torch.nn.Module.__init__(self)
        self.fc = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        self.fc.weight = torch.nn.Parameter(weight, requires_grad=False)


class DraftTrainer:
    """The draft in training, and a second one of the same make for walks in the published precision."""

    def __init__(self, config: TrainingConfig, draft_folder: Path) -> None:
        """Read the target's embedding and head and the draft to start from. TideError where they do not fit."""
        self.config, self.folder = config, draft_folder
        self.device = torch.device(config.device)
        self.published_dtype = DTYPES[config.dtype]
        self.compute_dtype = torch.bfloat16 if _fast_bfloat16(self.device) else torch.float32
        self.draft_config: dict[str, Any] = read_draft_config(draft_folder)
        target = TargetWeights.read(config.target, self.compute_dtype)
        embedding = target.embedding.to(self.device)
        attention = "sdpa" if self.device.type == "cpu" else "flex_attention"
        config_file = draft_folder / "config.json"
        self.draft = build_draft(config_file, embedding, dtype=self.compute_dtype, attention=attention)
        self.walker = build_draft(config_file, embedding, dtype=self.published_dtype, attention="sdpa").eval()
        tensors = read_draft(draft_folder)
        load_draft(self.draft, tensors)
        self._head = _Head(target.head.to(self.device))
        self._model = GeneratedRowsEagle3(self.draft, length=config.ttt_length, attention_backend=attention)
        self._backend = FSDPTrainingBackend(ParallelConfig())
        self._backend.prepare_model(self._model, wrap=False)
        strategy = Eagle3TrainStrategy(self._model, target_head=self._head, compact_teacher=True)
        self._core = TrainerCore(strategy, self._backend)
        self.restart_from(tensors)

    def restart_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a draft's weights, with the optimiser as new. TideError where they do not fit."""
        load_draft(self.draft, tensors)
        self._model.map_changed()
        self.renew_optimizer()
        # the masters are made from the module's weights, which may have been rounded
        for name, master in self.masters().items():
            master.data.copy_(tensors[name])

    def renew_optimizer(self) -> None:
        """An optimiser that has taken no step, with masters of the module's weights."""
        optimizer = BF16Optimizer(
            self.draft,
            lr=self.config.learning_rate,
            total_steps=_ENDLESS,
            warmup_ratio=WARMUP_STEPS / _ENDLESS,
            lr_scheduler="constant",
        )
        for group in optimizer.optimizer.param_groups:  # a tenth of a step on a CPU when it is not fused
            group["fused"], group["foreach"] = True, False
        self._backend.set_optimizer(optimizer)

    @property
    def vocabulary(self) -> Tensor:
        """The target's ids of the draft's tokens [D] int64, ascending, on the CPU."""
        return vocabulary_ids(self.draft.d2t).cpu()

    @torch.no_grad()
    def change_vocabulary(self, ids: Tensor) -> None:
        """Another vocabulary of the same size [D] int64, ascending. A token that stays keeps its row of the head and
        what the optimiser knows of it; the row of a new one is the target's own."""
        place = torch.full((len(self.draft.t2d),), -1)
        place[self.vocabulary] = torch.arange(len(ids))
        source = place[ids].to(self.device)
        stays = source >= 0
        master = self.masters()[_HEAD]
        rows = self._head.fc.weight[ids.to(self.device)].to(master.dtype, copy=True)
        rows[stays] = master[source[stays]]
        master.copy_(rows)
        for moment in self.optimizer.optimizer.state.get(master, {}).values():
            if moment.shape == master.shape:
                moved = torch.zeros_like(moment)
                moved[stays] = moment[source[stays]]
                moment.copy_(moved)
        self.take_map(ids - torch.arange(len(ids)))
        self.masters_changed()

    @torch.no_grad()
    def take_map(self, d2t: Tensor) -> None:
        """Write the vocabulary map alone: the head's rows are those of this map already, or are written next."""
        self.draft.d2t.copy_(d2t)
        self.draft.t2d.zero_()
        self.draft.t2d[vocabulary_ids(self.draft.d2t)] = True
        self._model.map_changed()

    def step(self, samples: Sequence[Sample]) -> Step:
        """Train on one batch of samples, at least one."""
        tensors, batch = self._batch(samples)
        result = self._core.train_step(batch)
        return Step(loss=float(result.loss), tokens=int(tensors["attention_mask"].sum()))

    def gradient(self, samples: Sequence[Sample]) -> Gradient:
        """The first half of a step that several processes take together, on at least one sample."""
        self.forget_gradients()
        tensors, batch = self._batch(samples)
        loss = self._core.strategy.forward_loss(batch).loss
        self._backend.backward(loss)
        rows, longest = tensors["input_ids"].shape
        return Gradient(float(loss.detach()), rows, longest, tokens=int(tensors["attention_mask"].sum()))

    def gradients(self) -> list[Tensor]:
        """What `gradient` left, the very tensors; zeros where it left nothing."""
        for _, weight in self._trained():
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        return [weight.grad for _, weight in self._trained()]

    def forget_gradients(self) -> None:
        """Of a step that was not taken, or of the share before where this one has no samples."""
        for _, weight in self._trained():
            weight.grad = None

    def apply_gradients(self) -> None:
        """The second half: clip, and take the optimiser's step."""
        self._backend.step()

    def _batch(self, samples: Sequence[Sample]) -> tuple[dict[str, Tensor], TrainBatch]:
        """Collated in main memory, and on the device."""
        tensors = collate(samples, self.config.max_sample_tokens, self.compute_dtype)
        batch = TrainBatch(
            sample_ids=[str(sample.info.id) for sample in samples],
            strategy="eagle3",
            tensors={name: tensor.to(self.device, non_blocking=True) for name, tensor in tensors.items()},
            metadata={"target_repr": "hidden_state"},
        )
        return tensors, batch

    def tensors(self) -> dict[str, Tensor]:
        """The draft as it stands: the fp32 masters and the vocabulary map. Copies, by SGLang's names."""
        masters = {n: m.detach().clone() for (n, _), m in zip(self._trained(), self.optimizer.fp32_params, strict=True)}
        return masters | {name: getattr(self.draft, name).clone() for name in BUFFERS}

    def digest(self) -> str:
        """sha256 in hex of every tensor of the draft as it stands."""
        found = hashlib.sha256()
        for _, tensor in sorted(self.tensors().items()):
            found.update(tensor.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def export(self, folder: Path) -> None:
        """Write model.safetensors and config.json of the draft as it stands into an existing folder."""
        write_draft(folder, self.tensors(), self.draft_config, self.published_dtype)

    @property
    def optimizer(self) -> BF16Optimizer:
        return self._backend.optimizer

    def masters(self) -> dict[str, Tensor]:
        """Name -> fp32 master, the very tensors that the optimiser updates."""
        return {name: master for (name, _), master in zip(self._trained(), self.optimizer.fp32_params, strict=True)}

    def masters_changed(self) -> None:
        """Bring the module's weights in line after the masters were written from outside."""
        with torch.no_grad():
            for (_, weight), master in zip(self._trained(), self.optimizer.fp32_params, strict=True):
                weight.copy_(master)

    def _trained(self) -> list[tuple[str, Tensor]]:
        return [(name, weight) for name, weight in self.draft.named_parameters() if weight.requires_grad]


def _fast_bfloat16(device: torch.device) -> bool:
    """bfloat16 products are twice as fast as fp32 ones where the processor has them, and slower where it has not."""
    if device.type != "cpu":
        return True
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
