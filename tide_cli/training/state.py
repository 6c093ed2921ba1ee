"""The trainer's memory between two lives of the process: fp32 masters, Adam's moments, the vocabulary map of the draft
in training, and how far it has come."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tide_cli.drafts.tensors import check_draft, check_vocabulary_ids, draft_kinds
from tide_cli.errors import TideError
from tide_cli.json_files import checked, json_object
from tide_cli.training.record import STATE_FILE
from tide_cli.training.trainer import WARMUP_STEPS, DraftTrainer

_MAP = "d2t"
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """parent: the version that the weights in training descend from. samples, tokens: trained on since that version.

    steps: optimiser steps since the weights were last restarted. cycle: number of the last cycle. begun: the kept
    version that they were restarted from in the parent's place, None where it was the parent itself.
    """

    parent: int
    cycle: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    begun: int | None = None


def state_tensors(trainer: DraftTrainer) -> tuple[dict[str, Tensor], int]:
    """(tensors, optimiser steps): all that training goes on from, the very tensors of `trainer`, on its device."""
    tensors, steps = {_MAP: trainer.draft.d2t}, 0
    for name, master in trainer.masters().items():
        tensors[f"master.{name}"] = master.detach()
        state = trainer.optimizer.optimizer.state.get(master)
        if state:
            steps = int(state["step"])
            tensors |= {f"{moment}.{name}": state[moment] for moment in _MOMENTS}
    return tensors, steps


def save_state(folder: Path, trainer: DraftTrainer, progress: Progress) -> None:
    """Write everything into one file of `folder`, replaced as a whole. TideError where the disk does not take it."""
    tensors, steps = state_tensors(trainer)
    tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
    metadata = {"progress": json.dumps(asdict(progress)), "adam_steps": str(steps)}
    new = folder / (STATE_FILE + ".new")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        save_file(tensors, new, metadata=metadata)
        new.chmod(0o600)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(folder / STATE_FILE)
    except (OSError, SafetensorError) as error:  # the latter is how the library reports a failed write
        new.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or str(error)
        raise TideError(
            f"cannot save the training state in {folder}", why=why, remedy="make room on that disk"
        ) from None


def read_progress(folder: Path) -> Progress | None:
    """How far the saved state had come; None where there is none that can be read."""
    try:
        with safe_open(folder / STATE_FILE, "pt") as file:
            return checked(Progress, json_object(file.metadata()["progress"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def load_state(folder: Path, trainer: DraftTrainer) -> bool:
    """Take up what `save_state` wrote into `folder`; False, and nothing is changed, where it is not of this draft."""
    return load_state_file(folder / STATE_FILE, trainer)


@torch.no_grad()
def load_state_file(path: Path, trainer: DraftTrainer) -> bool:
    """The same, from a file."""
    masters = trainer.masters()
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, the handle is no dict
            steps = int(file.metadata()["adam_steps"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return False
    kinds = ("master", *_MOMENTS) if steps else ("master",)
    expected = {f"{kind}.{name}": master for kind in kinds for name, master in masters.items()}
    expected[_MAP] = trainer.draft.d2t
    try:
        check_draft(tensors, draft_kinds(expected))
        check_vocabulary_ids(tensors[_MAP], len(trainer.draft.t2d))
    except TideError:
        return False
    take_state(trainer, tensors, steps)
    return True


@torch.no_grad()
def take_state(trainer: DraftTrainer, tensors: Mapping[str, Tensor], steps: int) -> None:
    """Go on from what `state_tensors` gave; the optimiser has taken no step yet."""
    trainer.take_map(tensors[_MAP])
    optimizer = trainer.optimizer.optimizer
    for name, master in trainer.masters().items():
        master.copy_(tensors[f"master.{name}"])
        if steps:
            moments = {moment: tensors[f"{moment}.{name}"].to(master.device) for moment in _MOMENTS}
            optimizer.state[master] = {"step": torch.tensor(float(steps), device=master.device)} | moments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no optimiser step came before: it came in another life
        for _ in range(min(steps, 2 * WARMUP_STEPS)):  # the rate is constant after the warm-up
            trainer.optimizer.scheduler.step()
    trainer.masters_changed()
