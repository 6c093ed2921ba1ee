"""Drafts in a store, from tensors in memory."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocab_map_hash
from tide_cli.training.draft_model import write_draft


def publish_tensors(
    store: DraftStore, folder: Path, tensors: dict[str, Tensor], config: dict[str, object], dtype: torch.dtype
) -> int:
    """The version of a draft without parent and gate, as the trainer writes it. folder: to be made, for its files."""
    folder.mkdir()
    write_draft(folder, tensors, config, dtype)
    return store.publish(
        folder,
        parent=None,
        target="made-up",
        target_revision="r",
        vocab_map_hash=vocab_map_hash(tensors["d2t"]),
        samples=0,
        tokens=0,
        gate=None,
    )
