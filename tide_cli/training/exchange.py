"""What the processes that train together say to each other, and the collectives that they enter together.

Words go over a pipe between the worker and each helper, tensors through torch.distributed. A collective is entered only
when every helper has just answered, so that one that is gone or hangs is noticed on its pipe.

SpecForge would take a process group as its own (it averages metrics over it and reduces the norm of the gradients): its
optimiser is told not to, as its backend is not wrapped, and `TrainerCore.train_step` is not called here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tide_cli.training.config import TrainingConfig
from tide_cli.training.material import Source
from tide_cli.training.trainer import DraftTrainer, Gradient

Kinds = dict[str, tuple[torch.Size, torch.dtype]]  # of tensors, by name


@dataclass(frozen=True)
class Begin:
    """Load this draft, then join the group that meets in the file `store`."""

    config: TrainingConfig
    draft: Path
    store: Path


@dataclass(frozen=True)
class Follow:
    """Take the worker's state, of `state.state_tensors`, which is broadcast. draft: that its trainer was made of."""

    draft: Path
    kinds: Kinds
    steps: int


@dataclass(frozen=True)
class Share:
    """Compute the gradient over these samples, of which there may be none."""

    sources: list[Source]


@dataclass(frozen=True)
class Apply:
    """Sum the gradients of all, this one's with `weight`, and take the optimiser's step."""

    weight: float


@dataclass(frozen=True)
class Part:
    """A helper's answer to a share. read: of each sample, whether it could still be read; gradient: see `own_share`."""

    read: list[bool]
    gradient: Gradient | None


@dataclass(frozen=True)
class Failed:
    """A helper's last words."""

    why: str


READY = "ready"  # a helper's answer to Begin and Follow: what comes next it does together with the others


def join(config: TrainingConfig, rank: int, store: Path) -> None:
    """Become one of the processes that train together, on the device that `place` names. They wait for each other."""
    for library in ("GLOO", "NCCL"):  # they are all here, and nobody else is to reach them
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    device = torch.device(place(config, rank))
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.FileStore(str(store), config.processes),
        rank=rank,
        world_size=config.processes,
        # the worker gives up first, for it can say why
        timeout=timedelta(seconds=2 * config.process_timeout),
        device_id=device if device.type == "cuda" else None,
    )


def leave() -> None:
    """No collective follows."""
    if dist.is_initialized():
        dist.destroy_process_group()


def place(config: TrainingConfig, rank: int) -> str:
    """The device of the process of this rank, as torch names it."""
    return f"{config.device}:{rank}" if config.device == "cuda" else config.device


def send_tensors(tensors: Iterable[Tensor]) -> list[dist.Work]:
    """Rank 0's part of a broadcast, each tensor contiguous."""
    return [dist.broadcast(tensor, 0, async_op=True) for tensor in tensors]


def receive_tensors(kinds: Kinds, device: torch.device) -> dict[str, Tensor]:
    """The others' part of it."""
    tensors = {name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in kinds.items()}
    for tensor in tensors.values():
        dist.broadcast(tensor, 0)
    return tensors


@torch.no_grad()
def sum_gradients(trainer: DraftTrainer, weight: float) -> list[dist.Work]:
    """Begin to add up all processes' gradients in place. They travel in the module's type, bfloat16 on a GPU."""
    gradients = trainer.gradients()
    for gradient in gradients:
        gradient.mul_(weight)
    return [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
